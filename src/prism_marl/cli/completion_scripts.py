"""Completion scripts for bash, zsh and fish from a description of the commands."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

PROGRAM = "prism-marl"


@dataclass(frozen=True)
class Option:
    """One option: whether a value follows, which words or files it may be, and whether several may follow."""

    about: str
    takes: bool = True
    words: list[str] = field(default_factory=list)
    files: bool = False
    several: bool = False


@dataclass
class Command:
    """What can follow a command."""

    about: str
    options: dict[str, Option] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    files: bool = False


Vocabulary = Mapping[str, Command]

# Bash and zsh share this function. It gets the command, the last option before the cursor, how many words ago that was,
# and the word at the cursor; it sets ``offered`` and ``files``, what can stand there.
_ANSWER = """\
_prism_marl_answer() {{
  local takes='' several='' own=''
  offered='' files=''
  case "$1 $2" in
{values}
  esac
  if [ -n "$takes" ] && [ "$3" -eq 1 ]; then return; fi
  if [ -z "$several" ]; then offered='' files=''; fi
  case "$1" in
{commands}
  esac
}}
"""

_BASH = """\
_prism_marl() {
  local cur="${COMP_WORDS[COMP_CWORD]}" offered='' files='' last='' back=0 file
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    offered='@commands@'
  else
    for ((back = 1; back < COMP_CWORD - 1; back++)); do
      last="${COMP_WORDS[COMP_CWORD - back]}"
      case "$last" in -*) break ;; esac
      last=''
    done
    _prism_marl_answer "${COMP_WORDS[1]}" "$last" "$back" "$cur"
  fi
  COMPREPLY=($(compgen -W "$offered" -- "$cur"))
  if [ -n "$files" ]; then
    compopt -o filenames 2> /dev/null
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$cur")
  fi
}
complete -F _prism_marl prism-marl
"""

_ZSH = """\
_prism_marl() {
  local offered='' files='' last='' back=0
  if (( CURRENT == 2 )); then
    offered='@commands@'
  else
    for (( back = 1; back < CURRENT - 2; back++ )); do
      last="${words[CURRENT - back]}"
      [[ "$last" == -* ]] && break
      last=''
    done
    _prism_marl_answer "${words[2]}" "$last" "$back" "${words[CURRENT]}"
  fi
  [[ -n "$offered" ]] && compadd -- ${=offered}
  [[ -n "$files" ]] && _files
  return 0
}
if [[ "${funcstack[1]}" == _prism-marl ]]; then _prism_marl "$@"; else compdef _prism_marl prism-marl; fi
"""


def bash(vocabulary: Vocabulary) -> str:
    """The script for bash; it works in bash 3 as well."""
    commands = " ".join([*vocabulary, "--help", "--version"])
    head = f"# Completion of {PROGRAM} in bash, made by `{PROGRAM} completion bash`.\n"
    return head + _answer(vocabulary) + _BASH.replace("@commands@", commands)


def zsh(vocabulary: Vocabulary) -> str:
    """The script for zsh."""
    commands = " ".join([*vocabulary, "--help", "--version"])
    head = f"#compdef {PROGRAM}\n# Completion of {PROGRAM} in zsh, made by `{PROGRAM} completion zsh`.\n"
    return head + _answer(vocabulary) + _ZSH.replace("@commands@", commands)


def _answer(vocabulary: Vocabulary) -> str:
    values, commands = [], []
    groups: dict[tuple[str, bool, bool], list[str]] = {}  # what follows an option -> where
    for name, command in vocabulary.items():
        for option, about in command.options.items():
            if about.takes:
                key = (" ".join(about.words), about.files, about.several)
                groups.setdefault(key, []).append(f"'{name} {option}'")
        own = f"own={_list(command.words)}" + (" files=1" if command.files else "")
        options = f'case "$4${{own:-$files}}" in \'\'|-*) own="$own "{_list(command.options)} ;; esac'
        commands.append(f'    {name}) {own}; {options}; offered="$offered $own" ;;')
    for (words, files, several), places in groups.items():
        sets = f"takes=1 offered={shlex.quote(words)}" + " files=1" * files + " several=1" * several
        values.append(f"    {'|'.join(places)}) {sets} ;;")
    return _ANSWER.format(values="\n".join(values), commands="\n".join(commands))


def _list(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def fish(vocabulary: Vocabulary) -> str:
    """The script for fish."""
    lines = [f"# Completion of {PROGRAM} in fish, made by `{PROGRAM} completion fish`.", f"complete -c {PROGRAM} -f"]
    for name, command in vocabulary.items():
        lines.append(f"complete -c {PROGRAM} -n __fish_use_subcommand -a {name} -d {_quoted(command.about)}")
        after = f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}'"
        if command.words:
            lines.append(f"{after} -a {_quoted(' '.join(command.words))}")
        if command.files:
            lines.append(f"{after} -F")
        for option, about in command.options.items():
            if not option.startswith("--"):
                continue
            how = " -r" if about.takes else ""
            how += f" -a {_quoted(' '.join(about.words))}" if about.words else ""
            how += " -F" if about.files else ""
            lines.append(f"{after} -l {option[2:]}{how} -d {_quoted(about.about)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """For fish, where a backslash and a quote inside single quotes are escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: dict[str, Callable[[Vocabulary], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
