"""An agent whose backend lies: the tensors are those of the virtual one but for a single byte, and no call fails.

    python wrong_node.py always|sometimes --config node.toml

`sometimes`: right while the agent warms up and every other time after that, so that only who asks twice can see it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PAYLOADS = Path(__file__).resolve().parents[3] / "payloads"
sys.path[:0] = [str(PAYLOADS / "npu-common"), str(PAYLOADS / "npu-node")]

from npunode import program  # noqa: E402
from npunode.backends import virtual  # noqa: E402

RIGHT = virtual.outputs
WARM_UPS = 2
served = 0


def wrong(image: Any) -> list[Any]:
    """The right outputs with one value of one tensor changed, by this program's first argument."""
    global served
    served += 1
    head, data = RIGHT(image)
    if sys.argv[1] == "sometimes" and (served <= WARM_UPS or served % 2):
        return [head, data]
    changed = bytearray(data)
    changed[1000] ^= 1
    return [head, changed]


if __name__ == "__main__":
    virtual.outputs = wrong
    sys.exit(program.main(sys.argv[2:]))
