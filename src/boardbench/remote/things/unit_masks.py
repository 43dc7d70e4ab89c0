"""Whether a unit is held back for this boot: a drop-in with a condition that never holds, in the runtime folder.

Not `systemctl mask --runtime`: a unit whose file lies in /etc, as a vendor's fan daemon may, wins over that.
"""

from __future__ import annotations

import os
from typing import Any

from ..system import System
from . import Restored

TEXT = """\
# A campaign of boardbench holds this unit back; gone when it ends, and after a reboot.
[Unit]
ConditionPathExists=!/
"""
_NAME = "zz-boardbench-held.conf"


def _file(name: str, system: System) -> str:
    return os.path.join(system.places.units_runtime, name + ".d", _NAME)


def masked(name: str, system: System) -> bool:
    """Whether it is held back."""
    return os.path.isfile(_file(name, system))


def mask(name: str, system: System) -> None:
    """Writes the drop-in and tells the manager."""
    path = _file(name, system)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    with open(path + ".partial", "w", encoding="utf-8") as file:
        file.write(TEXT)
    os.chmod(path + ".partial", 0o644)
    os.rename(path + ".partial", path)
    system.services.reload()


def snapshot(name: str, system: System) -> dict[str, Any]:
    """Whether it was held back before."""
    return {"masked": masked(name, system)}


def restore(name: str, state: dict[str, Any], system: System, _files: str) -> Restored:
    """Takes the drop-in away unless it was there before; a reboot has done so by itself."""
    before = masked(name, system)
    if before and not state["masked"]:
        path = _file(name, system)
        os.unlink(path)
        try:
            os.rmdir(os.path.dirname(path))
        except OSError:
            pass  # other drop-ins are in it
        system.services.reload()
    after = masked(name, system)
    return Restored(_word(before), _word(after), after == bool(state["masked"]) or not after)


def _word(is_masked: bool) -> str:
    return "masked" if is_masked else "may start"
