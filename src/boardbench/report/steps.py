"""What a playbook does, step by step, as lines for people: changes as they happen, the recap at the end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from boardbench.report.tables import print_table, recap_table

STYLES = {"changed": "yellow", "failed": "bold red", "unreachable": "bold red", "skipped": "cyan", "ok": "green"}


class StepPrinter:
    """Prints step events of many boards as they come; called from several threads.

    What a step changes is shown when it was asked for (`check`, `diff`) or when the step failed; `quiet` shows failures
    and the recap only.
    """

    def __init__(self, *, check: bool, diff: bool, quiet: bool = False) -> None:
        self._check = check
        self._diff = diff
        self._quiet = quiet
        self._console = Console(highlight=False, soft_wrap=True)
        self._lock = threading.Lock()

    def event(self, board: str, event: Mapping[str, Any]) -> None:
        """Show one event of one board: notes, and steps that changed, failed or were skipped by a failure."""
        if event.get("event") == "note":
            with self._lock:
                self._console.print(f"{escape(board):<8} {escape(str(event['message']))}")
            return
        if event.get("event") == "sent" and not self._quiet:
            with self._lock:
                sent, size = (int(event[key]) / 1e6 for key in ("bytes", "of"))
                self._console.print(f"{escape(board):<8} sending {sent:,.0f} of {size:,.0f} MB", style="dim")
            return
        if event.get("event") != "step":
            return
        state = str(event["state"])
        if state == "ok":
            return
        message = str(event.get("message") or "")
        if (state == "skipped" and not message) or (self._quiet and state == "changed"):
            return
        shown = "would change" if state == "changed" and self._check else state
        style = STYLES.get(state, "")
        with self._lock:
            tail = f": {escape(message)}" if message else ""
            self._console.print(f"{escape(board):<8} [{style}]{shown:<12}[/] {escape(str(event['id']))}{tail}")
            detailed = self._check or self._diff or state == "failed"
            for change in (event.get("changes") or []) if detailed else []:
                self._console.print(f"         {escape(_change(change))}", style="dim")
            if self._diff and event.get("diff"):
                self._console.print(escape(str(event["diff"])))

    def recap(self, outcome: Any) -> None:
        """The table at the end, and one sentence for every board that did not get through."""
        print_table(recap_table(outcome.as_json()["recap"]))
        for board, error in sorted(outcome.errors.items()):
            self._console.print(f"[bold red]{escape(board)}[/]: {escape(str(error))}")
        changed = sum(counts["changed"] for counts in outcome.as_json()["recap"].values())
        boards = len(outcome.as_json()["recap"])
        self._console.print(f"{changed} {'would change' if self._check else 'changed'} on {boards} boards")


def _change(change: Mapping[str, Any]) -> str:
    what, before, after = change.get("what"), change.get("before"), change.get("after")
    return f"{what}: {_short(before)} -> {_short(after)}"


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
