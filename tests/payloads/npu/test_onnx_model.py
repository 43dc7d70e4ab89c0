"""The onnx backend and its model: a real inference of the small INT8 model that the payload makes."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from npuforge import tensors
from npunode.backends import BackendError, make_backend

from .cluster import PAYLOADS, image_of
from .test_backends import settings

needs_runtime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is installed only where the backend is used"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The model, made by the program."""
    folder = tmp_path_factory.mktemp("model")
    command = [sys.executable, str(PAYLOADS / "npu-node/make_onnx.py"), "--out", str(folder / "m.onnx")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    return {"directory": str(folder), "file": "m.onnx", "sha256": said}


def test_the_model_is_the_same_file_every_time(model: dict[str, Any], tmp_path: Path) -> None:
    command = [sys.executable, str(PAYLOADS / "npu-node/make_onnx.py"), "--out"]
    again = subprocess.run([*command, str(tmp_path / "m")], capture_output=True, text=True, check=True, timeout=60)
    assert again.stdout.strip() == model["sha256"] == hashlib.sha256((tmp_path / "m").read_bytes()).hexdigest()
    failed = subprocess.run([*command, str(tmp_path / "no" / "m")], capture_output=True, text=True, timeout=60)
    assert failed.returncode == 3
    assert "cannot write" in failed.stderr


@needs_runtime
def test_equal_images_have_equal_int8_outputs_of_yolos_shape_in_every_worker(model: dict[str, Any]) -> None:
    async def run() -> list[bytes]:
        backend = make_backend(settings(backend={"type": "onnx"}, models=model, worker={"worker_count": 2}))
        await backend.start()
        try:
            made = await asyncio.gather(*(backend.infer(at, image_of(seed), None) for at, seed in ((0, 1), (1, 1))))
            made.append(await backend.infer(0, image_of(2), None))
            return [b"".join(one.result) for one in made]
        finally:
            await backend.close()

    first, same, other = asyncio.run(run())
    found = tensors.parse(first)
    assert [tensor.dims for tensor in found] == list(tensors.YOLO_DIMS)
    assert {(tensor.zero_point, round(tensor.scale, 6)) for tensor in found} == {(0, 0.03125)}
    assert first == same != other
    # Weights and scales are such that the outputs say something.
    assert all(len(set(bytes(tensor.data))) > 20 for tensor in found)


@needs_runtime
def test_a_file_that_is_no_such_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"no model")
    sha256 = hashlib.sha256(b"no model").hexdigest()
    models = {"directory": str(tmp_path), "file": "m.onnx", "sha256": sha256}
    with pytest.raises(BackendError, match="onnxruntime cannot load"):
        asyncio.run(make_backend(settings(backend={"type": "onnx"}, models=models)).start())
