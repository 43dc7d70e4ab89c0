"""An inventory, payloads and a playbook in a temporary folder, for the tests of this room."""

from __future__ import annotations

from pathlib import Path

from boardbench.inventory import Inventory, load_inventory
from boardbench.playbook.load import Playbook, load

INVENTORY = """\
version: 1
virtual: {name: default}
groups:
  npu: {boards: [king, queen]}
  gpu: {boards: [jetson]}
boards:
  jetson: {kind: jetson-orin-nano, capabilities: [gpu]}
  king: {kind: nanopi-r76s}
  queen: {kind: nanopi-r76s}
"""
PAYLOAD = """\
version: 1
name: %s
summary: for tests
boards: {kinds: [%s]}
files: [{source: main.py, path: main.py, mode: 0755}]
units: [{name: %s.service, source: main.service, enabled: true}]
"""


def inventory(folder: Path, king_vars: dict[str, object] | None = None) -> Inventory:
    """One Jetson and two NanoPis; `king_vars` are king's variables."""
    text = INVENTORY
    for name, value in (king_vars or {}).items():
        shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
        text = (
            text.replace("  king: {kind: nanopi-r76s", f"  king: {{kind: nanopi-r76s, vars: {{{name}: {shown}}}", 1)
            if "vars" not in text
            else text.replace("vars: {", f"vars: {{{name}: {shown}, ", 1)
        )
    path = folder / "inventory.yml"
    path.write_text(text)
    return load_inventory(path)


def payloads(folder: Path) -> Path:
    """A folder with the payloads `burn` (every kind of board) and `only-host`."""
    for name, kinds in (("burn", "nanopi-r76s, jetson-orin-nano, host"), ("only-host", "host")):
        place = folder / "payloads" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "payload.yml").write_text(PAYLOAD % (name, kinds, name))
        (place / "main.py").write_text("print('x')\n")
        (place / "main.service").write_text("[Service]\nExecStart=/bin/true\n")
    return folder / "payloads"


def playbook(folder: Path, text: str, of: Inventory | None = None) -> Playbook:
    """The playbook `play.yml` with this text."""
    path = folder / "play.yml"
    path.write_text(text)
    return load(path, of or inventory(folder), payloads=payloads(folder))
