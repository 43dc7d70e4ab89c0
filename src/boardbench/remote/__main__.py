"""`python3 -m boardbench_remote`: one call."""

from .main import main

raise SystemExit(main())
