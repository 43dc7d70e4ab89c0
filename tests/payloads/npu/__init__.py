"""The NPU cluster's programs, run as on boards."""
