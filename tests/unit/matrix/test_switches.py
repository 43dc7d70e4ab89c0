"""Switched sockets, against a server that speaks their formats: switched, read back, and errors in one sentence."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fake_boards import Fleet

from boardbench.errors import InputError, RigError
from boardbench.inventory import Board, Cooling, Power
from boardbench.matrix.cooling import HttpFan, Look
from boardbench.matrix.power.options import power_of
from boardbench.matrix.power.switch import Switch

DEVICES = ("shelly", "tasmota")
NOWHERE: Look = Look(None, "scope", 1.0, 1.0)  # type: ignore[arg-type]


class Socket:
    """One socket with relays. `stuck`: it takes commands and does nothing; `delay_s` before each answer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.on = {0: False, 1: False}
        self.asked: list[str] = []
        self.stuck = False
        self.delay_s = 0.0
        self.answer: tuple[int, bytes] | None = None

    def shelly(self, path: str, query: dict[str, str]) -> Any:
        channel = int(query["id"])
        if path == "/rpc/Switch.Set":
            was = self.on[channel]
            if not self.stuck:
                self.on[channel] = query["on"] == "true"
            return {"was_on": was}
        return {
            "id": channel, "source": "HTTP_in", "output": self.on[channel], "apower": 4.1, "voltage": 229.8,
            "temperature": {"tC": 41.2, "tF": 106.2},
        }  # fmt: skip

    def tasmota(self, query: dict[str, str]) -> Any:
        word, _, value = query["cmnd"].partition(" ")
        channel = int(word.removeprefix("Power") or "1")
        if channel - 1 not in self.on:
            return {"Command": "Error"}
        if value and not self.stuck:
            self.on[channel - 1] = value.casefold() == "on"
        name = "POWER" if len(self.on) == 1 else f"POWER{channel}"
        return {name: "ON" if self.on[channel - 1] else "OFF"}


@contextmanager
def socket() -> Iterator[Socket]:
    """A running socket that speaks both formats, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(parts.query))
            made.asked.append(urllib.parse.unquote(self.path))
            time.sleep(made.delay_s)
            value = made.tasmota(query) if parts.path == "/cm" else made.shelly(parts.path, query)
            status, body = made.answer or (200, json.dumps(value).encode())
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(BrokenPipeError):  # whoever asked has not waited
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made = Socket(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def plug() -> Iterator[Socket]:
    with socket() as made:
        yield made


def board(driver: str, options: Mapping[str, object]) -> Board:
    return dataclasses.replace(Fleet("king").boards[0], power=Power(driver, options))


def switch(plug: Socket, device: str, **more: object) -> Switch:
    found = power_of(board("http", {"device": device, "address": plug.address, "timeout_s": 20.0, **more}))
    assert found is not None
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_a_socket_is_switched_and_read_back(plug: Socket, device: str) -> None:
    mine = switch(plug, device)
    assert mine.get() is False
    mine.set(True)
    assert mine.get() is True
    assert plug.on == {0: True, 1: False}
    mine.set(False)
    assert plug.on == {0: False, 1: False}


def test_each_device_is_asked_in_its_own_words(plug: Socket) -> None:
    switch(plug, "shelly").set(True)
    switch(plug, "tasmota").set(False)
    assert plug.asked == [
        "/rpc/Switch.Set?id=0&on=true", "/rpc/Switch.GetStatus?id=0", "/cm?cmnd=Power1 Off", "/cm?cmnd=Power1",
    ]  # fmt: skip


@pytest.mark.parametrize(("device", "channel"), [("shelly", 1), ("tasmota", 2)])
def test_another_channel_is_another_relay(plug: Socket, device: str, channel: int) -> None:
    switch(plug, device, channel=channel).set(True)
    assert plug.on == {0: False, 1: True}


def test_a_tasmota_with_one_relay_answers_without_a_number(plug: Socket) -> None:
    del plug.on[1]
    mine = switch(plug, "tasmota")
    mine.set(True)
    assert mine.get() is True


@pytest.mark.parametrize("device", DEVICES)
def test_a_relay_that_sticks_is_found_by_the_read_back(plug: Socket, device: str) -> None:
    plug.stuck = True
    with pytest.raises(RigError, match="is still off"):
        switch(plug, device).set(True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"Not Found"), "status 404"),
        ((401, b""), "wants a password"),
        ((200, b"<html>hello</html>"), "not answer with a JSON object"),
        ((200, b"[1, 2]"), "not answer with a JSON object"),
        ((200, b'{"output": "yes", "POWER": 1}'), "does not say whether it is on"),
        ((200, b'{"WARNING": "Need user=<username>&password=<password>"}'), "does not say|refuses"),
        ((302, b""), "status 302"),
        ((200, b'{"a": "' + b"x" * 70000 + b'"}'), "JSON object"),
    ],
)
def test_a_strange_answer_is_an_error_of_the_rig(
    plug: Socket, device: str, answer: tuple[int, bytes], words: str
) -> None:
    plug.answer = answer
    with pytest.raises(RigError, match=words):
        switch(plug, device).get()


def test_a_socket_that_does_not_answer_costs_its_timeout_only(plug: Socket) -> None:
    plug.delay_s = 2.0
    with pytest.raises(RigError, match=r"within 0\.2 s") as raised:
        switch(plug, "shelly", timeout_s=0.2).get()
    assert raised.value.transient


def test_a_socket_that_is_not_there_is_said() -> None:
    with socket() as gone:
        mine = switch(gone, "shelly")
    with pytest.raises(RigError, match="cannot be asked"):
        mine.get()


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "ftp://192.0.2.1", "http://", "http://192.0.2.1/rpc", "http://h:x", "http://a:b@192.0.2.1"]
)
def test_an_address_must_be_one(address: str) -> None:
    with pytest.raises(InputError, match=r"lab\.yml:3"):
        power_of(board("http", {"device": "shelly", "address": address}))


def test_no_proxy_of_the_environment_is_asked(plug: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert switch(plug, "shelly").get() is False


@pytest.mark.parametrize(("runs_when", "on"), [("on", True), ("off", False)])
def test_a_fan_on_a_socket_runs_when_its_relay_says_so(plug: Socket, runs_when: str, on: bool) -> None:
    options = {"device": "tasmota", "address": plug.address, "fan_runs_when": runs_when}
    fan = HttpFan(dataclasses.replace(board("http", {}), cooling=Cooling("http", options)))
    assert fan.set("active") == []
    assert plug.on[0] is on
    assert fan.verify("active", NOWHERE)["ok"] is True
    plug.on[0] = not on
    seen = fan.verify("active", NOWHERE)
    assert seen["ok"] is False
    assert seen["gate"] == "cooling"


def test_power_by_commands_is_read_back(tmp_path: Path) -> None:
    state = tmp_path / "power"
    state.write_text("on")
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    options = {word: [sys.executable, "-c", write, str(state), word] for word in ("on", "off")}
    options["read"] = [sys.executable, "-c", "import sys; print(open(sys.argv[1]).read())", str(state)]
    mine = power_of(board("command", options))
    assert mine is not None
    mine.set(False)
    assert mine.get() is False
    mine.set(True)
    assert mine.get() is True
    stuck = power_of(board("command", options | {"off": [sys.executable, "-c", "pass"]}))
    assert stuck is not None
    with pytest.raises(RigError, match="still on"):
        stuck.set(False)
    state.write_text("maybe")
    with pytest.raises(RigError, match="not on or off"):
        mine.get()


def test_a_board_without_power_has_no_switch() -> None:
    assert power_of(Fleet("king").boards[0]) is None
