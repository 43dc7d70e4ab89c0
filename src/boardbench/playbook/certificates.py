"""The fleet's certificates for a playbook that pushes them: made on the controller before a board is touched.

A step names them as `${fleet_certificates}/...`. An inventory that gives this variable itself has certificates of its
own, and nothing is made.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from boardbench.inventory import Board
from boardbench.secretwords import REGISTRY

from .compile import chosen
from .load import Playbook

VARIABLE = "fleet_certificates"


@contextmanager
def certified(
    playbook: Playbook,
    boards: Sequence[Board],
    folder: Path,
    say: Callable[[str], None],
    *,
    check: bool = False,
    tags: Collection[str] | None = None,
    skip_tags: Collection[str] = (),
) -> Iterator[tuple[Board, ...]]:
    """The boards, those that get certificates with the variable that says where theirs are.

    What is missing in `folder` is made (see `certs.issue` for errors), and said. With `check` it is made in a copy that
    is gone afterwards: nothing is touched, and what would change is seen.
    """
    getting = [
        board
        for board in boards
        if VARIABLE not in board.vars
        and any(f"${{{VARIABLE}}}" in json.dumps(step.args) for step in chosen(playbook, board, tags, skip_tags))
    ]
    if not getting:
        yield tuple(boards)
        return
    with tempfile.TemporaryDirectory(prefix="boardbench-certs-") as copy:
        place = Path(copy) / "certs" if check else folder
        if check and folder.is_dir():
            shutil.copytree(folder, place)
        _make(place, [board.name for board in getting], "" if check else f" in {folder}", say)
        names = {board.name for board in getting}
        yield tuple(
            replace(board, vars={**board.vars, VARIABLE: str(place)}) if board.name in names else board
            for board in boards
        )


def _make(folder: Path, names: Sequence[str], where: str, say: Callable[[str], None]) -> None:
    # Only who needs certificates pays for the library.
    from boardbench.certs import CLIENT_NAME, SCHEDULER_NAME, issue

    made = [item.name for item in issue(folder, [*names, SCHEDULER_NAME, CLIENT_NAME]) if item.made]
    REGISTRY.add((folder / "token").read_text(encoding="ascii"), "registration token of the fleet")
    if made:
        say(f"certificates made{where}: {', '.join(made)}")
