"""The scheduler of the NPU cluster."""
