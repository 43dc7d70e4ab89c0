"""A call whose step events are kept: `apply` tells per step what happened, its result only counts."""

from __future__ import annotations

from typing import Any

from .wire import Call


class KeptSteps:
    """Stands for a call. The steps gather in `steps`; with `tell` the controller hears every event too."""

    def __init__(self, call: Call, *, tell: bool) -> None:
        self._call = call
        self._tell = tell
        self.steps: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def event(self, event: str, /, **fields: Any) -> None:
        """Keeps a step; passes the event on when it is to be told."""
        if event == "step":
            self.steps.append(fields)
        if self._tell:
            self._call.event(event, **fields)
