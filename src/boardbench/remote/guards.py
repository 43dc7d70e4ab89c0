"""The guards of a call: it ends at its deadline and with its link, and all that it has started ends with it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from . import processes
from .failures import RIG, Failure
from .places import Places
from .wire import Call

# So long an answer may take to get through to a controller that does not read.
SENDING_S = 10.0


class Record:
    """`/run/boardbench/calls/ID.json`: lets a later call prove that this one has ended."""

    def __init__(self, places: Places, call_id: str) -> None:
        self._path = os.path.join(places.calls, call_id + ".json")
        me = processes.stat(Places(), os.getpid())
        content = {
            "pid": os.getpid(),
            "start_time_ticks": me.start_time_ticks if me else None,
            "pgid": os.getpgid(0),
        }
        os.makedirs(places.calls, mode=0o755, exist_ok=True)
        partial = self._path + ".partial"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                json.dump(content, file)
        except OSError as error:
            error.filename = error.filename or partial
            raise
        os.rename(partial, self._path)

    def remove(self) -> None:
        """The call has ended, and with it its record."""
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass


def log(text: str) -> None:
    """A line for the controller's log. When the link is lost nobody reads it, and that must not stop a guard."""
    try:
        sys.stderr.write(f"boardbench: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def own_group() -> None:
    """Makes this process the leader of a group, so that all that it starts can be found."""
    if os.getpgid(0) != os.getpid():
        os.setsid()


def watch_over(call: Call, record: Record) -> None:
    """Starts the guards: deadline, end of the input, signals. Each ends the children and then this process.

    A call whose answer is on its way has ended by itself: then a guard only sees to it that the answer gets through.
    """

    def end(answer: Failure | None) -> None:
        if not call.claim_end():
            if not call.answered.wait(SENDING_S) and not call.ending.is_set():
                os._exit(3)
            return
        call.ending.set()
        left = processes.end_family(Places(), os.getpid(), grace_s=1.0)
        if answer is not None:
            if left:
                answer.what += f"; these processes cannot be ended: {', '.join(map(str, left))}"
            try:
                call.answer("error", answer.fields(), wait_s=2.0)
            except Failure:
                pass  # nobody is there to hear it
        if not left:
            record.remove()
        os._exit(3)

    def deadline() -> None:
        if not call.answered.wait(call.remaining_s()):
            end(Failure(RIG, f"deadline: not done within {call.deadline_s:g} s", call.verb, transient=True))

    def lost(why: str) -> None:
        try:
            if not call.claimed():
                log(f"{why}; ending call {call.id}")
        except OSError:
            pass  # the error stream was lost with the link: ending matters more than saying so
        end(None)

    def told(number: int, _frame: object) -> None:
        if call.answered.is_set():
            os._exit(0)  # between two calls there is nothing to end
        if call.claimed():
            call.stays = False  # the answer gets through, and then it ends
        else:
            lost(f"signal {number}")

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, told)
    for target in (deadline, lambda: call.serve_input(lost)):
        threading.Thread(target=target, daemon=True).start()
