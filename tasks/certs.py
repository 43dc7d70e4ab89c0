"""certs: a small certificate authority for the fleet's NPU cluster."""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode
from boardbench.locations import certificates_dir
from tasks._verb import emit, note, verb


@verb(
    help={
        "out": "folder for the files (default: certs/INVENTORY under boardbench's state folder)",
        "renew": "make all certificates and the token anew, under the same authority",
    }
)
def certs(
    c: Context, inventory: str = "", limit: str = "", out: str = "", renew: bool = False, json: bool = False
) -> int:
    """Make the certificates and the token by which the NPU cluster's programs know each other."""
    from boardbench.certs import CLIENT_NAME, SCHEDULER_NAME, issue
    from tasks._boards import inventory_path, look_at

    boards, _ = look_at(inventory, limit)
    folder = Path(out).resolve() if out else certificates_dir(inventory_path(inventory))
    issued = issue(folder, [*(board.name for board in boards), SCHEDULER_NAME, CLIENT_NAME], renew=renew)
    if json:
        emit(
            {
                "folder": str(folder),
                "issued": [
                    {
                        "name": item.name,
                        "made": item.made,
                        "expires": None if item.expires is None else item.expires.isoformat(),
                    }
                    for item in issued
                ],
            }
        )
    else:
        for item in issued:
            until = f", until {item.expires:%Y-%m-%d}" if item.expires else ""
            print(f"{item.name}: {'made' if item.made else 'kept'}{until}")
        made = sum(item.made for item in issued)
        note(f"{made} made, {len(issued) - made} kept in {folder}")
    return ExitCode.OK


VERBS = (certs,)
