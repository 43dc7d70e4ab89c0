"""From the words of the command line to a plan, without asking or starting any board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit

EXAMPLE = "for example: --set cooling=active,fanless"


@dataclass(frozen=True)
class Asked:
    """What is to be run: the matrix (restricted as the user said), and the locked plan that it must equal, if any."""

    matrix: Any
    locked: Any

    @property
    def limit(self) -> str:
        """The boards of the locked plan, as a limit; empty without one."""
        return "" if self.locked is None else ",".join(self.locked.boards)


def chosen_levels(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`["cooling=active", "cap_mhz=2208,1608"]` as factor -> levels. Raises InputError."""
    found: dict[str, tuple[str, ...]] = {}
    for word in given:
        name, equals, levels = word.partition("=")
        parts = tuple(part.strip() for part in levels.split(",") if part.strip())
        if not equals or not name or not parts:
            raise InputError(f"'{word}' is not factor=level,level", where="--set", advice=EXAMPLE)
        if name in found:
            raise InputError(
                f"factor '{name}' is restricted twice", where="--set", advice="give its levels in one --set"
            )
        found[name] = parts
    return found


def asked(matrix: str, chosen: Sequence[str], plan: str) -> Asked:
    """The matrix by name or path, or that of a locked plan. Raises InputError."""
    from boardbench.matrix import lock
    from boardbench.matrix.load import load_matrix
    from tasks._files import matrix_file

    if not matrix and not plan:
        raise InputError("no matrix named", advice="for example: --matrix thermal")
    if not plan:
        return Asked(load_matrix(matrix_file(matrix)).restrict(chosen_levels(chosen)), None)
    if chosen:
        raise InputError("a locked plan cannot be restricted", where="--set", advice="lock another plan")
    locked = lock.read(Path(plan))
    loaded = load_matrix(matrix_file(matrix or locked.matrix))
    return Asked(loaded.restrict(locked.restricted_to), locked)


def offline_plan(wanted: Asked, inventory: str, limit: str) -> Any:
    """The plan for the inventory's boards as `bench` would lock it now. Raises InputError."""
    from boardbench.matrix.load import choose_boards
    from boardbench.matrix.plan import make_plan
    from tasks._boards import look_at

    boards, time_scale = look_at(inventory, limit or wanted.limit)
    plan = make_plan(wanted.matrix, choose_boards(wanted.matrix, boards), time_scale)
    if wanted.locked is not None:
        wanted.locked.check(plan)
    return plan


def payload_bytes(plan: Any) -> int:
    """Size of all payload files that the plan's boards need, together."""
    from boardbench.locations import project_dir
    from boardbench.matrix.cluster import payload_names
    from boardbench.payload import load_payload

    names = (*payload_names(plan.matrix.workload), plan.matrix.logger.payload)
    one = sum(file.size for name in names for file in load_payload(project_dir() / "payloads" / name).files)
    return one * len(plan.boards)


def globs_of(given: str) -> tuple[str, ...]:
    """`"001-*,*-king"` as globs; none when nothing is given. Raises InputError for commas and spaces alone."""
    found = tuple(glob.strip() for glob in given.split(",") if glob.strip())
    if given and not found:
        raise InputError(f"'{given}' names no cell", where="--cells", advice="--list-cells shows all")
    return found


def cell_list(plan: Any, globs: Sequence[str], *, json: bool) -> int:
    """Print the plan's cells, or those that a glob fits, in order; returns the exit code."""
    selected = plan.select(globs)
    for cell in plan.cells:
        if selected is not None and cell.name not in selected:
            continue
        if json:
            emit({"cell": cell.name, "wave": cell.wave, "arm": cell.arm, "repetition": cell.repetition,
                  "boards": list(cell.boards)})  # fmt: skip
        else:
            print(cell.name)
    return ExitCode.OK
