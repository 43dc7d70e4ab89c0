"""What all verbs share: errors as one sentence, exit codes, and the two ways of printing (people, JSON)."""

from __future__ import annotations

import functools
import json
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from invoke import Exit, task

from boardbench.errors import BenchError, ExitCode
from boardbench.locations import state_dir
from boardbench.secretwords import REGISTRY

COMMON_HELP = {
    "inventory": "inventory file (default: inventory/virtual.yml)",
    "limit": "only these boards: names, groups or globs, joined by commas; !name leaves one out",
    "json": "print one JSON document (or JSON lines) on stdout, everything else on stderr",
}


# `print` writes a text and its newline one after the other: another thread's line can come between.
_TELLING = threading.Lock()


def emit(document: Mapping[str, Any]) -> None:
    """One line of JSON on stdout: stable keys, no NaN. Whole also when several boards' threads tell at once."""
    line = json.dumps(document, sort_keys=True, allow_nan=False) + "\n"
    with _TELLING:
        sys.stdout.write(line)
        sys.stdout.flush()


def note(text: str) -> None:
    """One line for people, on stderr, so that stdout stays what was asked for."""
    with _TELLING:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _record_bug() -> str:
    folder = state_dir() / "bugs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.txt"
    path.write_text(REGISTRY.hide(traceback.format_exc()), encoding="utf-8")
    return str(path)


def verb(**task_options: Any) -> Callable[[Callable[..., int | None]], Any]:
    """Make a function an Invoke task whose return value is the exit code and whose errors are one sentence."""
    task_help = {**COMMON_HELP, **task_options.pop("help", {})}

    def wrap(function: Callable[..., int | None]) -> Any:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            as_json = bool(kwargs.get("json"))
            try:
                code = function(*args, **kwargs) or ExitCode.OK
            except BenchError as error:
                note(f"inv: {error}")
                if as_json:
                    emit({"error": error.as_dict()})
                code = error.exit_code
            except KeyboardInterrupt:
                note("inv: interrupted")
                code = ExitCode.INTERRUPTED
            except (Exit, BrokenPipeError):
                raise
            except Exception as error:
                where = _record_bug()
                note(f"inv: a bug of boardbench: {type(error).__name__}: {error}; please report it with {where}")
                if as_json:
                    emit({"error": {"fault": "bug", "what": str(error), "where": where}})
                code = ExitCode.BUG
            if code != ExitCode.OK:
                raise Exit(code=int(code))

        used = {name: text for name, text in task_help.items() if name in names}
        return task(help=used, **task_options)(guarded)

    return wrap
