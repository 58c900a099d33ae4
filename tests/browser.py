"""A real browser for tests and pictures: Chromium over its DevTools pipe, with the standard library alone.

    python tests/browser.py page/index.html picture.png --width 1240 --dark     # a picture of a page

The pipe (two inherited file descriptors, messages that end with a zero byte) needs no port and no websocket.
"""

import argparse
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1", "--remote-debugging-pipe",
)  # fmt: skip
# The browser wants its pipes as descriptors 3 and 4: a process between us puts them there and becomes the browser.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
TROUBLE = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.requestWillBeSent")


def find_browser() -> str | None:
    """The first Chromium or Chrome on the path; ``CHROME`` names another one."""
    return os.environ.get("CHROME") or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab. Everything the page says to the console, every exception and every request is kept in ``trouble``."""

    def __init__(self, program: str):
        self._home = tempfile.mkdtemp(prefix="prism-marl-browser-")
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()
        command = [program, *FLAGS, f"--user-data-dir={self._home}", "about:blank"]
        start = [sys.executable, "-c", LAUNCH, str(from_us), str(to_us), *command]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(start, pass_fds=(from_us, to_us), stdin=quiet, stdout=quiet, stderr=quiet)
        os.close(from_us)
        os.close(to_us)
        self._waiting, self._count, self._session, self.trouble = b"", 0, None, []
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._home, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer; events that arrive meanwhile are kept."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("method") in TROUBLE:
                self.trouble.append(answer)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self, patience: float = 60.0) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            if not select.select([self._in], [], [], patience)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._waiting += part
        message, _, self._waiting = self._waiting.partition(b"\0")
        return json.loads(message)

    def open(self, page: Path, width: int = 1240, height: int = 900, *, dark: bool = False) -> None:
        """Load a page from disk at a size and with the system's preference for light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}]
        )
        self.resize(width, height)
        self.trouble.clear()
        self.call("Page.navigate", url=Path(page).resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && document.body !== null && location.protocol === 'file:'")

    def resize(self, width: int, height: int = 900) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, as plain data."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression: str, patience: float = 20.0) -> None:
        limit = time.monotonic() + patience
        while not self.evaluate(expression):
            if time.monotonic() > limit:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.02)

    def centre(self, selector: str) -> tuple[float, float]:
        """Where an element is, after scrolling it into view."""
        box = self.evaluate(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)});"
            " node.scrollIntoView({block: 'center'});"
            " const r = node.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        return box[0], box[1]

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """A true click with the mouse: whatever lies on top receives it."""
        x, y = self.centre(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose(self, selector: str, value: str) -> None:
        """An option of a select element."""
        self.evaluate(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.value = {json.dumps(value)};"
            " node.dispatchEvent(new Event('change')); })()"
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        """A key, wherever the focus is."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """The page as PNG; ``whole`` includes what lies below the window."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(answer["data"]))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description="A picture of a page in Chromium.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1240)
    parser.add_argument("--height", type=int, help="cut the picture here (default: the whole page)")
    parser.add_argument("--dark", action="store_true")
    found = parser.parse_args(argv)
    program = find_browser()
    if program is None:
        sys.exit("there is no Chromium or Chrome on the path: set CHROME to the program")
    with Browser(program) as browser:
        browser.open(found.page, found.width, found.height or 900, dark=found.dark)
        browser.evaluate("new Promise((done) => setTimeout(done, 300))")
        browser.picture(found.picture, whole=found.height is None)


if __name__ == "__main__":
    main(sys.argv[1:])
