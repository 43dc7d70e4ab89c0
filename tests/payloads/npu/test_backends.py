"""The backends: none is taken for another, each is started, used and left in the right order."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from npuforge import tensors
from npuforge.codes import Code, Refusal
from npunode.backends import BackendError, make_backend
from npunode.backends import rknn as rknn_module
from npunode.backends.virtual import load_constants, outputs
from npunode.queue import WorkerQueue
from npunode.settings import TABLES
from npunode.stations import Station

from .cluster import image_of

FAKE = Path(__file__).parent / "fake_rknn"


def settings(**over: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The agent's settings with these changes."""
    base = {table: {key: default for key, (_, default) in keys.items()} for table, keys in TABLES.items()}
    base["node"]["id"] = "king"
    return {name: {**keys, **over.get(name, {})} for name, keys in base.items()}


@pytest.fixture
def model(tmp_path: Path) -> dict[str, Any]:
    """A model file and its hash."""
    (tmp_path / "m.rknn").write_bytes(b"a model")
    sha256 = hashlib.sha256(b"a model").hexdigest()
    return {"directory": str(tmp_path), "file": "m.rknn", "sha256": sha256}


@pytest.fixture
def toolkit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in for the NPU's toolkit."""
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setattr(rknn_module, "RETRY_S", 0.01)
    import rknnlite.api as api

    yield api
    api.CALLS.clear()
    api.STATUS["init_runtime"] = []
    for name in ("rknnlite", "rknnlite.api"):
        del sys.modules[name]


def test_a_backend_that_the_agent_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(BackendError, match="there is no backend 'mock' in this agent; it has onnx, rknn, virtual"):
        make_backend(settings(backend={"type": "mock"}))


@pytest.mark.parametrize(("kind", "library"), [("rknn", "rknnlite.api"), ("onnx", "onnxruntime")])
def test_a_backend_whose_library_is_missing_is_refused_and_no_other_taken(
    kind: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(BackendError, match=f"does not have the backend '{kind}'"):
        make_backend(settings(backend={"type": kind}))


@pytest.mark.usefixtures("toolkit")
def test_another_model_than_the_one_that_is_wanted_is_refused(model: dict[str, Any]) -> None:
    wanted = [
        ({**model, "sha256": "0" * 64}, "has SHA-256"),
        ({**model, "sha256": ""}, "sha256 is missing"),
        ({**model, "file": "none.rknn"}, "cannot be read"),
        ({**model, "file": ""}, "file is missing"),
    ]
    for models, message in wanted:
        with pytest.raises(BackendError, match=message):
            make_backend(settings(backend={"type": "rknn"}, models=models))


def _rknn(model: dict[str, Any], **backend: Any) -> Any:
    worker = {"worker_count": 4}
    return make_backend(settings(backend={"type": "rknn", **backend}, models=model, worker=worker))


def test_each_worker_has_a_context_of_its_own_in_a_thread_of_its_own(toolkit: Any, model: dict[str, Any]) -> None:
    async def run() -> list[Any]:
        backend = _rknn(model)
        await backend.start()
        images = [bytes([seed]) * tensors.INPUT_BYTES for seed in range(4)]
        results = []
        for _ in range(5):
            results.append(await asyncio.gather(*(backend.infer(at, images[at], None) for at in range(4))))
        await backend.close()
        return results

    for results in asyncio.run(run()):
        for seed, inference in enumerate(results):
            found = tensors.parse(b"".join(inference.result))
            assert [tensor.dims for tensor in found] == list(tensors.YOLO_DIMS)
            assert all(set(bytes(tensor.data)) == {seed} for tensor in found)
            assert inference.stages["inference_us"] >= 0
    by_context: dict[int, list[tuple[str, int]]] = {}
    for context, name, thread in toolkit.CALLS:
        by_context.setdefault(context, []).append((name, thread))
    assert len(by_context) == 4
    for calls in by_context.values():
        assert [name for name, _ in calls] == ["new", "load_rknn", "init_runtime", *["inference"] * 5, "release"]
        assert len({thread for _, thread in calls}) == 1
    assert len({calls[0][1] for calls in by_context.values()}) == 4


def test_the_start_waits_for_an_npu_that_is_held_and_keeps_no_half(toolkit: Any, model: dict[str, Any]) -> None:
    # The second context of the first try fails; the second try is good.
    toolkit.STATUS["init_runtime"] = [0, -2]

    async def run() -> None:
        backend = _rknn(model)
        await backend.start()
        await backend.close()

    asyncio.run(run())
    names = [name for _, name, _ in toolkit.CALLS]
    assert names.count("new") == names.count("release") == 2 + 4
    first_try = names[: names.index("release") + 2]
    # Everything of the first try is let go before the next begins.
    assert first_try.count("new") == first_try.count("release") == 2


def test_an_npu_that_stays_held_is_told(toolkit: Any, model: dict[str, Any]) -> None:
    toolkit.STATUS["init_runtime"] = [-2] * 1000
    with pytest.raises(BackendError, match=r"status -2\); tried for 0.05 s: does another process hold it"):
        asyncio.run(_rknn(model, start_patience_ms=50).start())


@pytest.mark.usefixtures("toolkit")
def test_outputs_of_another_kind_than_asked_for_are_refused(model: dict[str, Any]) -> None:
    async def run() -> None:
        backend = make_backend(settings(backend={"type": "rknn"}, models=model, worker={"want_float": True}))
        await backend.start()
        try:
            await backend.infer(0, bytes(tensors.INPUT_BYTES), None)
        finally:
            await backend.close()

    with pytest.raises(Refusal) as refusal:
        asyncio.run(run())
    assert refusal.value.code == Code.BACKEND_ERROR


def test_the_virtual_output_depends_on_every_byte_of_the_image() -> None:
    base = image_of(1)
    reference = b"".join(outputs(base))
    assert len(tensors.parse(reference)) == 9
    for at in (0, 1_000_000, 1_217_999, 1_218_000, 1_228_799):
        other = bytearray(base)
        other[at] ^= 1
        assert b"".join(outputs(bytes(other))) != reference


def board(root: Path, cpu_khz: int, npu_hz: int = 950_000_000) -> Path:
    """The files of a board that the virtual backend reads."""
    for policy, top in (("policy0", 2_016_000), ("policy4", 2_208_000)):
        folder = root / "sys/devices/system/cpu/cpufreq" / policy
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpuinfo_max_freq").write_text(f"{top}\n")
        (folder / "scaling_cur_freq").write_text(f"{min(top, cpu_khz)}\n")
    npu = root / "sys/class/devfreq/27700000.npu"
    npu.mkdir(parents=True, exist_ok=True)
    (npu / "available_frequencies").write_text("300000000 950000000\n")
    (npu / "cur_freq").write_text(f"{npu_hz}\n")
    (root / "run/boardbench-virtual/load").mkdir(parents=True, exist_ok=True)
    return root


def test_without_a_board_the_virtual_backend_does_not_make_up_a_speed(tmp_path: Path) -> None:
    backend = make_backend(settings(backend={"type": "virtual", "virtual_root": str(tmp_path)}))
    with pytest.raises(BackendError, match="clocks of the big cores and the NPU are not to be found"):
        asyncio.run(backend.start())


def _latency_s(root: Path, peer: str | None) -> float:
    """The mean time of an inference on the model's own clock, which a busy host does not change."""

    async def run() -> float:
        backend = make_backend(settings(backend={"type": "virtual", "virtual_root": str(root)}))
        await backend.start()
        try:
            total_s = 0.0
            for _ in range(10):
                began = time.monotonic()
                visit = await backend.received(peer)
                await backend.infer(0, image_of(1), visit)
                await backend.answered(visit)
                # It is never early.
                assert time.monotonic() >= visit.at_s
                total_s += visit.at_s - began
            return total_s / 10
        finally:
            await backend.close()

    return asyncio.run(run())


def test_the_boards_clocks_set_the_time_of_a_virtual_inference(tmp_path: Path) -> None:
    fast = _latency_s(board(tmp_path / "fast", 2_208_000), "peer")
    capped = _latency_s(board(tmp_path / "capped", 600_000), "peer")
    slow_npu = _latency_s(board(tmp_path / "npu", 2_208_000, 300_000_000), "peer")
    direct = _latency_s(board(tmp_path / "direct", 2_208_000), None)
    assert direct < fast - 0.005
    assert capped > fast + 0.010
    # At 300 MHz the NPU alone takes 950/300 of its time.
    assert slow_npu > fast + 0.015


def test_the_load_is_registered_while_the_backend_runs_and_gone_after(tmp_path: Path) -> None:
    root = board(tmp_path, 2_208_000)
    folder = root / "run/boardbench-virtual/load"

    async def run() -> list[str]:
        backend = make_backend(settings(backend={"type": "virtual", "virtual_root": str(root)}))
        await backend.start()
        names = [path.name for path in folder.iterdir()]
        await backend.close()
        return names

    assert len(asyncio.run(run())) == 1
    assert list(folder.iterdir()) == []


def test_constants_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    assert load_constants()["direct_inferences_per_s"] == 161.5
    bad = tmp_path / "c.json"
    bad.write_text("{}")
    with pytest.raises(BackendError, match="cannot be read"):
        load_constants(str(bad))


def test_a_station_serves_first_come_first_served() -> None:
    station = Station(2)
    ends = [station.serve(at_s, 10.0) for at_s in (0.0, 0.0, 1.0, 30.0)]
    assert ends == [10.0, 10.0, 20.0, 40.0]


def test_the_queue_serves_in_order_and_refuses_what_is_too_much_or_too_late() -> None:
    async def run() -> tuple[list[str], int]:
        queue = WorkerQueue(1, 2)
        told: list[str] = []

        async def ask(name: str, timeout_s: float) -> None:
            try:
                worker = await queue.take(timeout_s)
            except Refusal as refusal:
                told.append(f"{name} {refusal.code.value}")
                return
            told.append(name)
            await asyncio.sleep(0.05)
            queue.give_back(worker)

        tasks = [asyncio.ensure_future(ask(name, 5.0 if name != "late" else 0.01)) for name in ("a", "b", "late", "d")]
        await asyncio.sleep(0.02)
        cancelled = asyncio.ensure_future(ask("cancelled", 5.0))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(*tasks, cancelled, return_exceptions=True)
        assert (queue.depth, queue.in_flight) == (0, 0)
        return told, await queue.take(0.0)

    told, worker = asyncio.run(run())
    assert told[0] == "a"
    assert set(told) == {"a", "b", "late NPF-1303", "d NPF-1303"}
    assert worker == 0


def test_a_worker_is_never_lost_when_its_waiter_is_cancelled_at_any_moment() -> None:
    async def run() -> None:
        queue = WorkerQueue(1, 10)
        for order in itertools.permutations(["cancel", "give", "yield"]):
            held = await queue.take(1.0)
            waiter = asyncio.ensure_future(queue.take(1.0))
            await asyncio.sleep(0)
            for step in order:
                if step == "cancel":
                    waiter.cancel()
                elif step == "give":
                    queue.give_back(held)
                else:
                    await asyncio.sleep(0)
            (result,) = await asyncio.gather(waiter, return_exceptions=True)
            if not isinstance(result, BaseException):
                queue.give_back(result)
            assert (queue.depth, queue.in_flight) == (0, 0)
            queue.give_back(await queue.take(0.1))

    asyncio.run(run())
