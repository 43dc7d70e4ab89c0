"""The record of what was written to `min_freq`: a file that outlives a crash and dies with the boot."""

from __future__ import annotations

import json
import os
from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """The id of this boot."""
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def write_whole(path: str, text: str) -> None:
    """By rename, so that no reader sees half of it."""
    partial = f"{path}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(partial, 0o644)
    os.replace(partial, path)


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; None when there is none, or a damaged one."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


class RecordFile:
    """`floor.json` in the run folder."""

    def __init__(self, run_dir: str) -> None:
        self.path = os.path.join(run_dir, "floor.json")

    def get(self, node: str) -> int | None:
        """What was written to this node in this boot and not taken back, in Hz."""
        found = self.read()
        return int(found["hz"]) if found is not None and found["node"] == node else None

    def read(self) -> dict[str, Any] | None:
        """`{"node", "hz", "boot_id"}` of this boot; None when all is taken back."""
        found = read_json(self.path)
        if found is None or found.get("boot_id") != boot_id() or not {"node", "hz"} <= found.keys():
            return None
        return found

    def put(self, node: str, hz: int) -> None:
        """Before the write, so that no crash lies between the two."""
        write_whole(self.path, json.dumps({"node": node, "hz": hz, "boot_id": boot_id()}, sort_keys=True) + "\n")

    def clear(self) -> None:
        """All is taken back."""
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
