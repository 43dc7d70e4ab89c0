#!/usr/bin/env python3
"""The load generator of the NPU cluster: sends images to a scheduler and says what came back, and when.

    main.py --scheduler HOST:PORT --plaintext --concurrency 12 --duration 60 --out FOLDER

Libraries come from `npu-common` beside this payload, and from the folders in NPU_LIBRARIES (joined by ":").
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = (HERE, os.path.join(HERE, "..", "npu-common"), os.path.join(HERE, "..", "npu-wheels"))
sys.path[:0] = [path for path in (*LIBRARIES, *os.environ.get("NPU_LIBRARIES", "").split(":")) if path]

if __name__ == "__main__":
    from npuload.program import main

    sys.exit(main(sys.argv[1:]))
