"""The service: listens to the probes, keeps the floor while calls are in progress, and gives it back."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from typing import Any, Callable

from . import node as nodes
from . import processes, settings
from .calls import Calls, Event
from .faults import BoardError, UserError
from .floor import Floor
from .record import RecordFile
from .status import StatusFile
from .sysfs import Sysfs
from .watch import Watch, Watched, why_blind

_LOOK_EVERY_S = 1.0
_FILES_EVERY_S = 0.5
_DEATHS_EVERY_S = 0.25


class Service:
    """One run of the service. `run` returns the exit code; the floor is lowered and all probes are gone then."""

    def __init__(self, settings_path: str, sys_root: str, run_dir: str, say: Callable[[str], None]) -> None:
        self._settings_path = settings_path
        self._stamp = settings.stamp(settings_path)
        self._settings = settings.load(settings_path)
        self._sys_root = sys_root
        self._say = say
        self._record = RecordFile(run_dir)
        self._status = StatusFile(run_dir)
        self._files = Sysfs()
        self._selector = selectors.DefaultSelector()
        self._calls = Calls(self._settings.hold_s)
        self._watch = self._new_watch()
        self._floor: Floor | None = None
        self._stopping = False
        self._told: dict[str, str] = {}
        self._due = {"search": 0.0, "look": 0.0, "files": 0.0, "deaths": 0.0, "retry": 0.0}
        self._raises = 0
        self._latency_s: float | None = None

    def _new_watch(self) -> Watch:
        return Watch(self._settings, self._selector, self._say, self._source_ended)

    def _source_ended(self, source: str) -> None:
        self._calls.end_source(source, time.monotonic())

    def run(self) -> int:
        """Until SIGTERM or SIGINT. UserError for wrong settings."""
        waker = self._take_signals()
        try:
            while not self._stopping:
                self._round()
            return 0
        finally:
            self._end()
            waker.close()

    def _take_signals(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        self._selector.register(ours, selectors.EVENT_READ, theirs)
        return ours

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _round(self) -> None:
        now = time.monotonic()
        if now >= self._due["files"]:
            self._look_at_files(now)
        if now >= self._due["search"]:
            self._search(now)
        if now >= self._due["deaths"]:
            self._look_for_deaths(now)
        self._steer(time.monotonic())
        self._publish()
        for key, _ in self._selector.select(self._wait_s(time.monotonic())):
            if isinstance(key.data, Watched):
                self._listen(key.data)
            elif isinstance(key.fileobj, socket.socket):
                key.fileobj.recv(64)

    def _wait_s(self, now: float) -> float:
        waits = [self._due["search"], self._due["files"]]
        if self._calls.open_threads():
            waits.append(self._due["deaths"])
        if self._floor is not None and self._floor.raised_hz is not None:
            waits += [self._due["look"], self._calls.active_until() or now]
        return min(max(min(waits) - now, 0.0), 1.0)

    def _listen(self, one: Watched) -> None:
        events = one.tracer.read()
        self._watch.tell_attached(one)
        for event in events:
            self._take(one, event)

    def _take(self, one: Watched, event: Event) -> None:
        was_idle = not self._calls.open_threads()
        if not self._watch.counts(event.pid):
            return
        self._calls.take(one.source, event)
        if was_idle and event.depth > 0:
            # Now, before the rest of the events: the GPU is about to be used.
            self._steer(time.monotonic())

    def _look_at_files(self, now: float) -> None:
        self._due["files"] = now + _FILES_EVERY_S
        if self._watch.changed_on_disk():
            self._due["search"] = now
        stamp = settings.stamp(self._settings_path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            changed = settings.load(self._settings_path)
        except UserError as error:
            self._problem("settings", f"{error}; the settings of before stay in force")
            return
        self._problem("settings", "")
        self._say(f"{self._settings_path} has changed: starting over with the new settings")
        self._let_go()
        self._settings = changed
        self._calls = Calls(changed.hold_s)
        self._watch = self._new_watch()
        self._floor = None
        self._due["search"] = now

    def _search(self, now: float) -> None:
        self._due["search"] = now + self._settings.search_s
        blind = why_blind(self._settings.bpftrace)
        self._problem("bpftrace", blind)
        if not blind:
            self._watch.search(now)
        self._find_node()
        self._calls.forget_old(now)

    def _find_node(self) -> None:
        try:
            found = nodes.find(self._sys_root, self._settings.node)
            if self._floor is None or self._floor.node != found:
                self._floor = Floor(found, self._files, self._record, self._settings.floor_hz, self._say)
            self._floor.watch_idle()
        except BoardError as error:
            self._problem("node", str(error))
        else:
            self._problem("node", "")

    def _look_for_deaths(self, now: float) -> None:
        self._due["deaths"] = now + _DEATHS_EVERY_S
        for pid, tid in self._calls.open_threads():
            counted = self._watch.survey.counted.get(pid)
            same = counted is not None and processes.start_ticks(pid) == counted.start_ticks
            if not same or not processes.has_thread(pid, tid):
                self._calls.end_thread(pid, tid, now)

    def _steer(self, now: float) -> None:
        """Raises, keeps or lowers the floor, as the calls want it; after a failure not before a second has passed."""
        if self._floor is None or now < self._due["retry"]:
            return
        wanted, raised = self._calls.wanted(now), self._floor.raised_hz is not None
        if wanted == raised and not (raised and now >= self._due["look"]):
            return
        try:
            if wanted:
                self._keep_up(self._floor, now, raised)
            else:
                self._floor.lower("idle")
        except BoardError as error:
            self._problem("floor", str(error))
            self._due["retry"] = now + _LOOK_EVERY_S
        else:
            self._problem("floor", "")

    def _keep_up(self, floor: Floor, now: float, raised: bool) -> None:
        since, pids = self._calls.first_open_s(), self._calls.pids()
        if not raised and since is None:
            return  # only the hold time is left: what could not be raised in time is not raised now
        self._due["look"] = now + _LOOK_EVERY_S
        if not floor.keep_up("pid " + ", ".join(map(str, pids)) + " inference"):
            self._due["retry"] = now + _LOOK_EVERY_S
        elif not raised and since is not None:
            self._raises += 1
            self._latency_s = time.monotonic() - since

    def _problem(self, name: str, text: str) -> None:
        """Says a problem once, until it changes."""
        if text and self._told.get(name) != text:
            self._say(text)
        if text:
            self._told[name] = text
        else:
            self._told.pop(name, None)

    def _let_go(self) -> None:
        """Lowers the floor and ends all probes, in this order: the floor matters more."""
        try:
            if self._floor is not None:
                self._floor.lower("idle")
        except BoardError as error:
            self._say(f"the floor could not be lowered: {error}")
        self._watch.close()

    def _end(self) -> None:
        self._let_go()
        self._files.close()
        self._selector.close()
        self._status.clear()

    def _publish(self) -> None:
        self._status.put(self._as_json())

    def _as_json(self) -> dict[str, Any]:
        floor, pids = self._floor, self._calls.pids()
        problems: list[str] = sorted([*self._told.values(), *self._watch.problems])
        return {
            "version": 1,
            "pid": os.getpid(),
            "state": self._state(),
            "node": None if floor is None else floor.node.path,
            "floor_hz": None if floor is None else floor.floor_hz,
            "raised_hz": None if floor is None else floor.raised_hz,
            "foreign_hz": None if floor is None else floor.foreign_hz,
            "in_call_pids": pids,
            "raises": self._raises,
            "last_raise_latency_s": self._latency_s,
            "hold_s": self._settings.hold_s,
            "libraries": self._watch.as_json(),
            "processes": [{"pid": one.pid, "why": one.why} for one in self._watch.survey.counted.values()],
            "problems": problems,
        }

    def _state(self) -> str:
        """ "blind": no call could be seen or no clock be written; "yielded": the clock is somebody else's."""
        tracers = [one.tracer.state for one in self._watch.libraries()]
        if self._floor is None or "bpftrace" in self._told or (tracers and set(tracers) == {"failed"}):
            return "blind"
        if tracers and "watching" not in tracers:
            return "starting"
        if self._floor.foreign_hz is not None:
            return "yielded"
        return "inference" if self._calls.pids() else "idle"
