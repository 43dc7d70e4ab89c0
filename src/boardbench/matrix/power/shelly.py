"""A Shelly of the second generation or later: its RPC over HTTP, component Switch."""

from __future__ import annotations

from dataclasses import dataclass

from boardbench.errors import RigError
from boardbench.matrix.power import web


@dataclass(frozen=True)
class Shelly:
    """One relay. `channel` counts from 0."""

    address: str
    channel: int
    timeout_s: float
    where: str

    def set(self, on: bool) -> None:
        """See `Switch`. The answer of `Switch.Set` tells the state before, so the state is asked for."""
        query = {"id": str(self.channel), "on": "true" if on else "false"}
        web.get_object(self.address, "/rpc/Switch.Set", query, self.timeout_s, self.where)
        if self.get() is not on:
            raise RigError(f"the Shelly took the command and is still {'off' if on else 'on'}", where=self.where)

    def get(self) -> bool:
        """See `Switch`."""
        query = {"id": str(self.channel)}
        status = web.get_object(self.address, "/rpc/Switch.GetStatus", query, self.timeout_s, self.where)
        output = status.get("output")
        if not isinstance(output, bool):
            raise RigError(f"the Shelly does not say whether it is on: {status!r:.120}", where=self.where)
        return output
