"""The node agent of the NPU cluster."""
