"""The start of the board's side: per request one verb and one answer, in a deadline and never longer than the link."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import time
from typing import Any, Callable

from .failures import BAD_INPUT, BUG, RIG, Failure
from .guards import Record, log, own_group, watch_over
from .places import Places
from .wire import Call, Reader, Writer

# verb -> (module beside this one, function). Imported when called: start-up time is paid on every call.
VERBS = {
    "facts": ("facts", "facts"),
    "look": ("look", "look"),
    "apply": ("apply", "apply"),
    "restore": ("restore", "restore"),
    "scopes": ("restore", "scopes"),
    "purge": ("restore", "purge"),
    "lease": ("lease", "lease"),
    "strays": ("strays", "strays"),
    "fan": ("fan", "fan"),
    "drop-cache": ("pagecache", "drop_cache"),
    "prepare": ("runs", "prepare"),
    "start": ("runs", "start"),
    "watch": ("runs", "watch"),
    "finish": ("runs", "finish"),
    "fetch": ("runs", "fetch"),
    "forget": ("runs", "forget"),
    "staged": ("staged", "staged"),
    "ended": ("calls", "ended"),
    "status": ("status", "status"),
    "reboot": ("power", "reboot"),
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


def _streams() -> tuple[int, int]:
    """Takes the wire away from everybody else: prints and children get the error stream and an empty input."""
    source, sink = os.dup(0), os.dup(1)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, sink


# The deadline's guard has been woken by then; ending stubborn children takes it about a second.
GUARD_S = 10.0
# A controller that has died without a word leaves no program behind for longer.
IDLE_S = 60.0


def check_request(request: dict[str, Any]) -> dict[str, Any]:
    """The request itself, or Failure `bad-input` that says which part of it is wrong."""
    if not _ID.match(str(request.get("call", ""))):
        raise Failure(BAD_INPUT, f"the call has no usable id: {str(request.get('call'))[:80]!r}", "request")
    if request.get("verb") not in VERBS:
        raise Failure(
            BAD_INPUT,
            f"unknown verb {str(request.get('verb'))[:80]!r}",
            "request",
            "one of " + ", ".join(sorted(VERBS)),
        )
    deadline = request.get("deadline_s")
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not 0 < deadline <= 7 * 86400:
        raise Failure(BAD_INPUT, f"deadline_s is {str(deadline)[:80]!r}", "request", "seconds above 0, at most a week")
    if not isinstance(request.get("args", {}), dict):
        raise Failure(BAD_INPUT, "args is not an object", "request")
    return request


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _bug(error: BaseException) -> Failure:
    import traceback

    log(traceback.format_exc())
    return Failure(BUG, f"{type(error).__name__}: {error}", _where(error), "report this with the board's log")


def _io_failure(error: OSError) -> Failure:
    """An operating system error that no verb has explained: the board's trouble, with its place in the code."""
    name = error.filename if isinstance(error.filename, str) else ""
    advice = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return Failure(RIG, f"{error.strerror or error} ({_where(error)})", name, advice)


def run_verb(request: dict[str, Any], call: Call) -> dict[str, Any]:
    """The verb's result value. Every error leaves as a Failure."""
    module_name, function_name = VERBS[request["verb"]]
    try:
        module = importlib.import_module("." + module_name, __package__)
        verb: Callable[[dict[str, Any], Call], dict[str, Any]] = getattr(module, function_name)
        args = request.get("args", {})
        if "lease" in args and request["verb"] != "lease":
            lease = importlib.import_module(".lease", __package__)
            lease.hold(args["lease"], call)
            args = {name: value for name, value in args.items() if name != "lease"}
        return verb(args, call)
    except Failure:
        raise
    except OSError as error:
        raise _io_failure(error) from error
    except Exception as error:
        raise _bug(error) from error


def main(arguments: list[str] | None = None) -> int:
    """Serves the call that comes on standard input, and each that follows one which says that it will `stay`.

    `--root DIR` (tests): the board is that folder.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    places = Places(arguments[1]) if arguments[:1] == ["--root"] and len(arguments) == 2 else Places()
    source, sink = _streams()
    # Whatever the login says: folders that are made on the way to a file are for all to read.
    os.umask(0o022)
    reader = Reader(source)
    try:
        request = reader.message()
    except Failure as failure:
        return _refuse(Writer(sink), failure)
    code = 0
    while request is not None:
        writer = Writer(sink)  # one a call: what an ended call still says goes nowhere
        try:
            check_request(request)
            own_group()
            record = Record(places, str(request["call"]))
        except Failure as failure:
            return _refuse(writer, failure)
        except OSError as error:
            return _refuse(writer, _io_failure(error))
        call = Call(request, reader, writer, places)
        watch_over(call, record)
        code = _serve(request, call, record)
        request = call.next_request(IDLE_S) if call.stays else None
        if request is None:
            # Not a plain return: a guard that is blocked in a read must not keep the interpreter's end waiting.
            os._exit(code)
    return code


def _refuse(writer: Writer, failure: Failure) -> int:
    try:
        writer.send(dict(failure.fields(), event="error"), last=True)
    except Failure as lost:
        log(str(lost))
    return 1


def _serve(request: dict[str, Any], call: Call, record: Record) -> int:
    try:
        value = run_verb(request, call)
        if call.remaining_s() == 0:
            # What a step could not do in the time of the call is the call's deadline, not the step's failure:
            # the guard says so and ends this process.
            call.ending.wait(GUARD_S)
            raise Failure(RIG, f"deadline: not done within {call.deadline_s:g} s", call.verb, transient=True)
    except Failure as failure:
        name, fields, code = "error", failure.fields(), 1
    else:
        name, fields, code = "result", {"value": value}, 0
    if not call.claim_end():
        # What the verb says now is only the echo of its children being ended. The guard answers and exits.
        time.sleep(10)
        os._exit(3)
    record.remove()
    if call.stays:
        fields = dict(fields, stays=True)
    try:
        call.answer(name, fields)
    except Failure as failure:
        # The value itself cannot be sent (too long, not JSON): say that; or the link is gone, which is told to the log.
        log(str(failure))
        call.stays = False
        try:
            call.answer("error", failure.fields())
        except Failure:
            pass
        code = 1
    call.answered.set()
    return code
