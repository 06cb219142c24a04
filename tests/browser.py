"""Chromium without a window, asked over a pipe in its DevTools protocol: no driver, no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""None: there is none on this machine."""
_TAKES = b"\0"
"""What ends a message."""


class Tab:
    """One page of a browser, and what it complained of or asked the network for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        """Of a browser's pipes."""
        self._to, self._from = to_browser, from_browser
        self._numbers, self._rest, self._session = count(1), b"", ""
        self.heard: list[dict[str, Any]] = []
        """Events, as the protocol has them."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """The answer to one command. Raises RuntimeError where the browser refuses it."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        asked = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._to, json.dumps(asked).encode() + _TAKES)
        while (message := self._next()).get("id") != number:
            self.heard.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def _next(self) -> dict[str, Any]:
        while _TAKES not in self._rest:
            if not (more := os.read(self._from, 1 << 16)):
                raise RuntimeError("the browser has ended")
            self._rest += more
        message, self._rest = self._rest.split(_TAKES, 1)
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, page: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Show a file in a window of so many pixels, and wait until it is there."""
        self.heard.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.heard):
            self.heard.append(self._next())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to. Raises RuntimeError where it fails."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions of scripts."""
        said = []
        for event in self.heard:
            about = event.get("params", {})
            match event.get("method"):
                case "Log.entryAdded":
                    said.append(about["entry"]["text"])
                case "Runtime.exceptionThrown":
                    said.append(str(about["exceptionDetails"]))
                case "Runtime.consoleAPICalled":
                    said.append(str(about["args"]))
        return said

    @property
    def requested(self) -> list[str]:
        """Addresses of everything that was loaded, the page itself among it."""
        asked = [e for e in self.heard if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def picture(self, whole: bool = True) -> bytes:
        """A PNG of the page, below the window, too."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])


@contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """A browser with one page. ``profile``: a folder of its own."""
    assert PROGRAM is not None
    words = [
        PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-dev-shm-usage", "--hide-scrollbars=false", f"--user-data-dir={profile}",
    ]  # fmt: skip
    reads, to_browser = os.pipe()
    from_browser, writes = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (reads, writes)]
    actions = [  # it reads from 3 and writes to 4
        (os.POSIX_SPAWN_DUP2, ends[0], 3),
        (os.POSIX_SPAWN_DUP2, ends[1], 4),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    browser = os.posix_spawn(PROGRAM, words, os.environ, file_actions=actions)
    for end in (reads, writes, *ends):
        os.close(end)
    try:
        yield Tab(to_browser, from_browser)
    finally:
        os.kill(browser, signal.SIGKILL)
        os.waitpid(browser, 0)
        os.close(to_browser)
        os.close(from_browser)


LEAST_LETTERS = 9.0
"""Pixels of the smallest letters of a figure."""
LAID_OUT = """(() => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
  const wide = document.documentElement, seen = (e) => e.getBoundingClientRect();
  const figures = [...document.querySelectorAll(".drawing svg")].filter((e) => seen(e).width > 0);
  return {
    page: [wide.scrollWidth, wide.clientWidth],
    tables: [...document.querySelectorAll(".table")].map(
      (e) => [e.innerText, e.scrollWidth, e.clientWidth]),
    inside: [...document.querySelectorAll(".table, .drawing svg, .tile, .box, pre")]
      .every((e) => seen(e).left >= 0 && seen(e).right <= wide.clientWidth),
    cards: [...document.querySelectorAll(".tile")].map((e) => [e.scrollWidth, e.clientWidth]),
    figures: figures.length,
    letters: figures.flatMap((e) => [...e.querySelectorAll("text")].map((t) => {
      const scale = t.getScreenCTM();
      return parseFloat(getComputedStyle(t).fontSize) * Math.hypot(scale.a, scale.b);
    })).reduce((a, b) => Math.min(a, b), 99),
    ground: getComputedStyle(document.body).backgroundColor,
  };
})()"""


def check_whole(shown: Tab, page: Path, *, tables: int, figures: int) -> None:
    """That a page is whole in wide and narrow windows, light and dark, asks the network for
    nothing, and has so many tables and figures at least."""
    grounds = {}
    for dark in (False, True):
        for width in (1400, 420):
            shown.open(page, width, dark=dark)
            found = shown.value(LAID_OUT)
            assert found["page"] == [width, width]
            assert found["inside"]
            assert len(found["tables"]) >= tables
            assert all(content <= room for content, room in found["cards"])
            if width == 1400:  # narrower, tables scroll within themselves
                cut = [head for head, content, room in found["tables"] if content > room]
                assert cut == []
            assert found["figures"] >= figures
            assert found["letters"] >= LEAST_LETTERS
            assert shown.complaints == []
            assert shown.requested == [page.as_uri()]
            grounds[dark] = found["ground"]
    assert grounds[False] != grounds[True]
