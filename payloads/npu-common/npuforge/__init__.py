"""What the agent, the scheduler and the load generator of the NPU cluster share: protocol, codes, channels, files."""

VERSION = "boardbench-0.1.0"
