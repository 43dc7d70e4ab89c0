"""The backends: what runs an inference. The agent has these and no others, and never takes one for another."""

import importlib

KNOWN = {"rknn": "Rknn", "onnx": "Onnx", "virtual": "Virtual"}


class BackendError(Exception):
    """The backend cannot be had or cannot work; one sentence."""


def make_backend(settings):
    """The backend that the settings name, not started. BackendError for one that this agent does not have."""
    name = settings["backend"]["type"]
    if name not in KNOWN:
        raise BackendError(f"there is no backend '{name}' in this agent; it has {', '.join(sorted(KNOWN))}")
    module = importlib.import_module(f"npunode.backends.{name}")
    return getattr(module, KNOWN[name])(settings)
