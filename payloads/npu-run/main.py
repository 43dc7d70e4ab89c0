#!/usr/bin/env python3
"""One board's part in a run of the NPU cluster: a fresh node agent, or a fresh scheduler and the load.

    main.py node --out FOLDER --name king --listen A:51001 --scheduler B:50051 --bell B:50052 --backend virtual
    main.py load --out FOLDER --address B --nodes king,queen --concurrency 24 --duration-s 60

Libraries come from `npu-common` beside this payload, and from the folders in NPU_LIBRARIES (joined by ":").
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = (HERE, os.path.join(HERE, "..", "npu-common"), os.path.join(HERE, "..", "npu-wheels"))
sys.path[:0] = [path for path in (*LIBRARIES, *os.environ.get("NPU_LIBRARIES", "").split(":")) if path]

if __name__ == "__main__":
    from npurun.program import main

    sys.exit(main(sys.argv[1:]))
