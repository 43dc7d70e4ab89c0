"""A headless Chromium of our own, driven over its pipe: no port, no network, no second library."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--no-default-browser-check", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
START_S = 60.0


def path() -> str | None:
    """The browser of this machine; None when there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of one browser. `events` holds what it reported, in order, as (method, parameters)."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._from = process, to, back
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []

    def call(self, method: str, timeout_s: float = START_S, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the DevTools protocol and returns its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0, "the browser does not answer"
            assert self._process.poll() is None, f"the browser ended with {self._process.returncode}"
            if select.select([self._from], [], [], min(left, 1.0))[0]:
                self._buffer += os.read(self._from, 1 << 20)
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append((message["method"], message.get("params", {})))
        return message

    def attach(self) -> None:
        """Make a page and listen to all it reports."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def size(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """The window's width in CSS pixels, and the colour scheme that its user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, file: Path) -> None:
        """Load a file and wait until its charts are drawn."""
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.wait_for(
            "document.readyState === 'complete' && !!document.body && location.protocol === 'file:' && "
            "(document.documentElement.dataset.ready === 'yes' || !document.getElementById('charts'))"
        )

    def wait_for(self, expression: str, timeout_s: float = START_S) -> None:
        """Until the expression is true in the page."""
        deadline = time.monotonic() + timeout_s
        while not self.value(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """What an expression is in the page (JSON values)."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def shot(self, file: Path, top: int = 0, height: int | None = None) -> None:
        """The page as a PNG: whole, or `height` pixels of it from `top`."""
        width, whole = self.value("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, refusals by the page's own policy."""
        found = []
        for method, given in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                found.append(f"console.{given['type']}: {given['args']}")
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {given['entry']}")
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself left out, and data inside it."""
        asked = [given["request"]["url"] for method, given in self.events if method == "Network.requestWillBeSent"]
        return [url for url in asked[1:] if not url.startswith("data:")]


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; it is ended, whatever happens."""
    program = path()
    assert program is not None
    there_in, to = os.pipe()
    back, there_out = os.pipe()

    def wire() -> None:
        # The protocol wants to read at 3 and to write at 4; neither end may be overwritten by the other.
        first, second = os.dup(there_in), os.dup(there_out)
        high_in, high_out = os.dup2(first, 60), os.dup2(second, 61)
        os.dup2(high_in, 3)
        os.dup2(high_out, 4)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}"],
        preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": str(profile)},
    )  # fmt: skip
    os.close(there_in)
    os.close(there_out)
    try:
        page = Browser(process, to, back)
        page.attach()
        yield page
        with contextlib.suppress(AssertionError, OSError):
            page._session = None
            page.call("Browser.close", timeout_s=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        os.close(to)
        os.close(back)
