"""boards: who is there, and whose key is pinned."""

from __future__ import annotations

import sys
from typing import Any

from invoke import Context

from boardbench.errors import BenchError, ExitCode, InputError
from tasks._verb import emit, note, verb


@verb(default=True, name="list")
def boards(c: Context, inventory: str = "", limit: str = "", json: bool = False) -> int:
    """Ask every board for its facts and show them as a table."""
    from boardbench.board import Door
    from boardbench.crew import each
    from tasks._boards import open_rig

    rig = open_rig(inventory, limit)

    def ask(board: Any) -> Any:
        with Door.open(board, rig.inventory.known_hosts) as door:
            return door.call("facts", {"paths": ["/"]}, deadline_s=30.0)["facts"]

    answers = each(rig.boards, ask)
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, BenchError)}
    if json:
        emit(
            {
                "boards": {name: answer for name, answer in answers.items() if name not in failed},
                "failed": {name: error.as_dict() for name, error in failed.items()},
            }
        )
    else:
        from boardbench.report.tables import facts_table, print_table

        print_table(facts_table(rig.boards, answers))
        for error in failed.values():
            note(f"inv: {error}")
    if not failed:
        return ExitCode.OK
    # As `provision` has it: 3 only when no board could be asked.
    return ExitCode.RIG if len(failed) == len(answers) else ExitCode.OUTCOME


@verb(
    positional=["board"],
    help={"board": "name in the inventory", "yes": "do not ask; the printed fingerprints were compared"},
)
def trust(c: Context, board: str, inventory: str = "", yes: bool = False, json: bool = False) -> int:
    """Pin the host key of a new or re-flashed board, after showing old and new fingerprints."""
    from boardbench import known_hosts
    from tasks._boards import open_rig

    rig = open_rig(inventory, "")
    chosen = rig.inventory.select(board)
    if len(chosen) != 1:
        raise InputError(f"'{board}' names {len(chosen)} boards", advice="trust one board at a time")
    pins = rig.inventory.known_hosts
    access = chosen[0].access
    key = known_hosts.fetch_key(access, where=board)
    before = [pin.fingerprint for pin in known_hosts.pins(pins, access)]
    after = known_hosts.fingerprint(key)
    note(f"{board}: pinned {', '.join(before) or 'no key'}; the board shows {after} ({key.get_name()})")
    if before != [after]:
        if not yes and not _confirmed(board):
            note("nothing changed")
            return ExitCode.OUTCOME
        known_hosts.trust(pins, access, key)
    changed = before != [after]
    note(f"{board}: pinned in {pins}" if changed else f"{board}: this key is pinned already; nothing changed")
    if json:
        emit({"board": board, "before": before, "after": after, "changed": changed})
    return ExitCode.OK


def _confirmed(board: str) -> bool:
    if not sys.stdin.isatty():
        raise InputError(
            "not a terminal to ask on",
            where=board,
            advice="compare the fingerprint with the one that the board itself prints, then add --yes",
        )
    print("Pin the new key? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
