"""The file of a model: every node must have the very one that the settings name."""

import hashlib
import os

from npunode.backends import BackendError


def model_file(settings):
    """The model's path and hash, checked against the settings. BackendError when it is not the one that is wanted."""
    models = settings["models"]
    path = os.path.join(models["directory"], models["file"])
    if not models["file"]:
        raise BackendError("[models] file is missing: this backend needs a model file")
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except OSError as error:
        raise BackendError(f"the model {path} cannot be read: {error.strerror}") from None
    found = digest.hexdigest()
    wanted = models["sha256"].lower()
    if not wanted:
        raise BackendError(f"[models] sha256 is missing: {path} has {found}, and every node must have the same")
    if found != wanted:
        raise BackendError(f"the model {path} has SHA-256 {found}, not {wanted}")
    return path, found
