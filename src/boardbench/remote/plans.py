"""What a resource answers when it is asked what would have to change."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Change:
    """One difference between what is and what should be, in words for people. An absent thing reads `absent`."""

    what: str
    before: str
    after: str

    def as_dict(self) -> dict[str, str]:
        """As the wire says it."""
        return {"what": self.what, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Plan:
    """All differences of a step. No differences: the step is `ok`."""

    changes: tuple[Change, ...] = ()
    diff: str = ""
    message: str = ""
    # A program's run leaves nothing that could be read back.
    provable: bool = field(default=True)
