#!/usr/bin/env python3
"""The agent of a node: serves inferences of one backend, and tells the scheduler that it is there.

    main.py --config node.toml

Libraries come from `npu-common` beside this payload, and from the folders in NPU_LIBRARIES (joined by ":").
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = (HERE, os.path.join(HERE, "..", "npu-common"), os.path.join(HERE, "..", "npu-wheels"))
sys.path[:0] = [path for path in (*LIBRARIES, *os.environ.get("NPU_LIBRARIES", "").split(":")) if path]

if __name__ == "__main__":
    from npunode.program import main

    sys.exit(main(sys.argv[1:]))
