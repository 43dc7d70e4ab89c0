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


def ledger_dir() -> Path:
    """Entries of the ledger, which can be made again: in the cache, or in the folder that BOARDBENCH_LEDGER names."""
    named = os.environ.get("BOARDBENCH_LEDGER", "")
    return Path(named) if named else cache_dir() / "ledger"


def certificates_dir(inventory: Path) -> Path:
    """The small CA, certificates and token of the boards of an inventory file."""
    return state_dir() / "certs" / inventory.stem


def project_dir() -> Path:
    """The checkout that the running package was installed from (editable): playbooks, payloads, results lie there."""
    return Path(os.environ.get("BOARDBENCH_PROJECT", Path(__file__).resolve().parents[2]))
