"""A socket with Tasmota: commands over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boardbench.errors import RigError
from boardbench.matrix.power import web


@dataclass(frozen=True)
class Tasmota:
    """One relay. `channel` counts from 1, as Tasmota's `Power1` does."""

    address: str
    channel: int
    timeout_s: float
    where: str

    def set(self, on: bool) -> None:
        """See `Switch`. The command's own answer is not trusted: the state is asked for."""
        self._ask(f"Power{self.channel} {'On' if on else 'Off'}")
        if self.get() is not on:
            raise RigError(f"the Tasmota took the command and is still {'off' if on else 'on'}", where=self.where)

    def get(self) -> bool:
        """See `Switch`. A socket with one relay answers `POWER`, one with several `POWER1` and so on."""
        status = self._ask(f"Power{self.channel}")
        state = status.get(f"POWER{self.channel}", status.get("POWER") if self.channel == 1 else None)
        if state not in ("ON", "OFF"):
            raise RigError(f"the Tasmota does not say whether it is on: {status!r:.120}", where=self.where)
        return bool(state == "ON")

    def _ask(self, command: str) -> dict[str, Any]:
        status = web.get_object(self.address, "/cm", {"cmnd": command}, self.timeout_s, self.where)
        if "WARNING" in status:  # status 200 all the same
            raise RigError(
                f"the Tasmota refuses: {status['WARNING']!r:.80}", where=self.where, advice="switch its web login off"
            )
        return status
