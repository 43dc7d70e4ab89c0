"""Where boardbench keeps what it makes: the XDG folders, and nothing elsewhere."""

from __future__ import annotations

import os
from pathlib import Path


def _xdg(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path is to be ignored.
    base = Path(value) if value.startswith("/") else Path.home() / default
    return base / "boardbench"


def state_dir() -> Path:
    """Things that must outlive a command: virtual fleets, their keys and logs."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Things that can be made again: base images, builds, unpacked packages. Always content-addressed."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def project_dir() -> Path:
    """The checkout that the running package was installed from (editable): playbooks, payloads, results lie there."""
    return Path(os.environ.get("BOARDBENCH_PROJECT", Path(__file__).resolve().parents[2]))
