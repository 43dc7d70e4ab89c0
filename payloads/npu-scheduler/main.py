#!/usr/bin/env python3
"""The scheduler of the NPU cluster: takes requests, picks a node for each, and answers once.

    main.py --config scheduler.toml

Libraries come from `npu-common` beside this payload, and from the folders in NPU_LIBRARIES (joined by ":").
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = (HERE, os.path.join(HERE, "..", "npu-common"), os.path.join(HERE, "..", "npu-wheels"))
sys.path[:0] = [path for path in (*LIBRARIES, *os.environ.get("NPU_LIBRARIES", "").split(":")) if path]

if __name__ == "__main__":
    from npuscheduler.program import main

    sys.exit(main(sys.argv[1:]))
