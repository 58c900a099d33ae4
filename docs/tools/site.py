"""What mkdocs does not do by itself; it calls the functions named ``on_...`` (mkdocs.yml, ``hooks``).

Pages in docs/ link to source files and to CONTRIBUTING.md as the repository has them. In the site each linked file is a
page of its own, so that every link works in both. Pages of the reference come from build/docs, where
``docs/tools/reference.py`` has written them, and notebooks become pages.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
WRITTEN = ROOT / "build/docs"  # by reference.py
REFERENCE = ("reference/api.md", "reference/settings.md", "reference/commands.md")
PROJECT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}  # in the repository, in the site
OUTWARD = re.compile(r"\]\(\.\./([^)#\s]+)")  # a link from a page in docs/ to a file outside of it
NOTEBOOK = re.compile(r"\]\(([\w-]+)\.ipynb\)")
LANGUAGES = {".py": "python", ".js": "javascript", ".json": "json", ".toml": "toml", ".sh": "bash"}


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are not files in docs/."""
    pages = {name: _reference(name) for name in REFERENCE}
    pages |= {to: _from_the_root(ROOT / name) for name, to in PROJECT.items()}
    for path in sorted((ROOT / "docs").glob("*.ipynb")):
        pages[f"{path.stem}.md"] = notebook_page(path)
    texts = [file.content_string for file in files.documentation_pages()] + list(pages.values())
    for name in sorted({name for text in texts for name in OUTWARD.findall(text)} - PROJECT.keys()):
        pages[place(name)] = _source_page(name)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files of the repository, and to notebooks, into links to their pages."""
    own = page.file.src_uri.removesuffix(".md")  # the page of a notebook links to the notebook itself
    markdown = NOTEBOOK.sub(lambda found: found[0] if found[1] == own else f"]({found[1]}.md)", markdown)
    up = "../" * page.file.src_uri.count("/")
    return OUTWARD.sub(lambda found: f"]({up}{place(found[1])}", markdown)


def place(name: str) -> str:
    """The page in the site that shows a file of the repository."""
    return PROJECT.get(name, f"files/{name}.md")


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text and its code, in order."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    parts.insert(1, f"This page is a notebook: [{path.name}]({path.name}).")
    return "\n\n".join(parts)


def _reference(name: str) -> str:
    path = WRITTEN / name
    if not path.exists():
        raise PluginError(f"{path.relative_to(ROOT)} is missing: `make docs` writes it first")
    return path.read_text(encoding="utf-8")


def _from_the_root(path: Path) -> str:
    """A page that stands outside docs/: links to docs/X lead to X, all others to files of the repository."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"\]\((?!\w+:|#)(docs/)?", lambda found: "](" if found[1] else "](../", text)


def _source_page(name: str) -> str:
    path = ROOT / name
    if not path.is_file():
        raise PluginError(f"a page links to {name}, which is no file of the repository")
    text, language = path.read_text(encoding="utf-8"), LANGUAGES.get(path.suffix, "text")
    return f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n````{language}\n{text.rstrip()}\n````\n"
