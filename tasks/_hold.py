"""The part of `bench` that is about holding boards and going on with a campaign: --resume, --steal, --lease-ttl."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError

HELP = {
    "resume": "go on with a campaign that was killed or interrupted (part of its name; none: the newest unfinished)",
    "steal": "take boards away from the campaign that holds them; needs --why",
    "why": "why boards are taken away; kept in both leases and in the campaign",
    "lease_ttl": "seconds for which boards stay held when this controller dies (default 60)",
}
OPTIONAL = ["resume"]


@dataclass(frozen=True)
class Hold:
    """How the boards are held."""

    steal_why: str | None
    lease_ttl_s: float

    @staticmethod
    def of(steal: bool, why: str, lease_ttl: float) -> Hold:
        """From the options. Raises InputError."""
        if steal and not why.strip():
            raise InputError(
                "--steal takes boards away from somebody", advice="say the reason: --why 'their desk is off'"
            )
        if why and not steal:
            raise InputError("--why is the reason for --steal", advice="add --steal, or leave it out")
        if not 1.0 <= lease_ttl <= 3600.0:
            raise InputError(f"{lease_ttl:g} is not between 1 and 3600", where="--lease-ttl")
        return Hold(why.strip() or None, lease_ttl)

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `campaign.run` and `campaign.resume`."""
        from boardbench.matrix.run_cell import Timings

        return {"steal_why": self.steal_why, "timings": Timings(lease_ttl_s=self.lease_ttl_s)}


def campaign_to_resume(given: str | bool) -> Path:
    """The campaign that --resume means. Raises InputError."""
    from boardbench.matrix.resume import newest_unfinished
    from tasks._files import campaign_dir, results_dir

    return campaign_dir(given) if isinstance(given, str) and given else newest_unfinished(results_dir())


def resume_matrix(rig: Any, folder: Path, matrix: str, hold: Hold, operator: Any, *, json: bool) -> Any:
    """Go on with a campaign with live progress on stderr; returns its outcome."""
    from boardbench.board import Door
    from boardbench.matrix import campaign
    from boardbench.report.progress import progress_display
    from tasks._files import matrix_file
    from tasks._playbooks import bringing

    with progress_display(plain=json) as display:
        return campaign.resume(
            folder,
            rig.inventory,
            matrix_path=matrix_file(matrix) if matrix else None,
            open_door=lambda board: Door.open(board, rig.inventory.known_hosts, stay=True),
            on_progress=display,
            operator=operator,
            argv=["inv", *sys.argv[1:]],
            bringing=bringing(rig.inventory),
            **hold.options(),
        )


def how_to_resume(folder: Path, inventory: str, matrix: str) -> str:
    """The exact command that goes on with an interrupted campaign."""
    words = ["./inv", "bench", "--resume", folder.name]
    words += ["--matrix", matrix] if "/" in matrix and not Path(matrix).is_absolute() else []
    words += ["-i", inventory] if inventory else []
    return shlex.join(words)
