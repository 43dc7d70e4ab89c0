"""What the expert cache gains under memory pressure, and what it costs without. Ratios taken in one run."""

from __future__ import annotations

import math
import mmap
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.payloads.llama.cache_server import Answer, Server, server
from tests.payloads.llama.own_disk import READ_AHEAD_KIB, can_make_disks, own_disk
from tests.payloads.llama.pressure import can_limit_memory, evict, memory_limit

from boardbench.moe.make_model import make_model

MIB = 1 << 20
# 768 units of 2.4 MiB (slices of 0.8 MiB), 1.9 GiB; a token uses 48 of them.
SHAPE: dict[str, Any] = {"types": "q8_0", "n_embd": 1024, "n_ff": 768, "n_layers": 12, "n_experts": 64, "n_used": 4}
SKEW = 0.5
LIMIT_MIB = 600
BUDGET_MIB = 400
READERS = 8
TOKENS = 24
SHORT = 8
ROUNDS = 3
PROMPTS = (
    "the quick brown fox and the lazy dog",
    "in the inn on the hill the three rivers meet",
    "what is the name of that red bird over there",
    "once upon a time there was a miller and a king",
)
# The same for all arms: on a machine that others use too, threads spinning at a barrier would measure the others.
CALM = {"OMP_WAIT_POLICY": "passive", "LLAMA_EXPERT_CACHE_READERS": str(READERS)}


@dataclass(frozen=True)
class Model:
    path: Path
    disk: str


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="boardbench-perf-") as name, ExitStack() as stack:
        folder, disk = Path(name), "the host's own disk and read-ahead"
        if can_make_disks():
            folder = stack.enter_context(own_disk(folder, 2300 * MIB))
            disk = f"ext4 on a loop device, read-ahead {READ_AHEAD_KIB} KiB"
        made = make_model(folder / "large.gguf", skew=SKEW, **SHAPE)
        assert made.bytes_total >= 3 * LIMIT_MIB * MIB
        yield Model(made.path, disk)


def _read_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("read_bytes:")).split()[1])


def _cpu_ns(pid: int) -> int:
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@dataclass(frozen=True)
class Run:
    """One fresh server under pressure, all prompts."""

    answers: list[Answer]
    read_mib: float
    counters: dict[str, Any]

    @property
    def decode_s(self) -> float:
        return sum(a.predicted_ms for a in self.answers) / 1e3

    @property
    def prefill_s(self) -> float:
        return sum(a.prompt_ms for a in self.answers) / 1e3


def _under_pressure(build: Path, model: Model, budget_mib: int | None, folder: Path) -> Run:
    evict(model.path)
    with memory_limit(LIMIT_MIB * MIB) as limit:
        with server(
            build, model.path, folder, cache_mib=budget_mib, threads=2, env=CALM, before=limit.enter
        ) as running:
            before = _read_bytes(running.pid)
            answers = [running.complete(prompt, TOKENS) for prompt in PROMPTS]
            read = (_read_bytes(running.pid) - before) / MIB
            counters = running.counters()["models"][0] if budget_mib else {}
        assert limit.peak_bytes() <= LIMIT_MIB * MIB
    return Run(answers, read, counters)


def _device_mib_per_s(path: Path, depth: int, seconds: float = 2.0) -> float:
    """Random 128 KiB O_DIRECT reads, `depth` at once, and nothing else."""
    chunk = 128 * 1024
    chunks = path.stat().st_size // chunk
    done = [0] * depth
    end = time.monotonic() + seconds

    def read(index: int) -> None:
        dice, buffer = random.Random(index), mmap.mmap(-1, chunk)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        while time.monotonic() < end:
            os.preadv(fd, [buffer], dice.randrange(chunks) * chunk)
            done[index] += 1
        os.close(fd)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) * chunk / MIB / seconds


def _tell(name: str, runs: list[Run]) -> None:
    tokens = TOKENS * len(PROMPTS)
    rate = statistics.median(tokens / run.decode_s for run in runs)
    prefill = statistics.median(run.prefill_s for run in runs)
    read = statistics.median(run.read_mib for run in runs) / tokens
    print(
        f"{name}: decode {rate:.2f} tok/s, prefill {prefill:.2f} s, {read:.0f} MiB read a token (median of {len(runs)})"
    )


@pytest.mark.perf
@pytest.mark.slow
@pytest.mark.skipif(not can_limit_memory(), reason="needs root and a memory control group")
def test_decode_under_pressure_is_faster_by_a_third(
    llama_build: Callable[[str], Path], model: Model, tmp_path: Path
) -> None:
    arms: dict[str, tuple[Path, int | None]] = {
        "stock": (llama_build("stock"), None),
        "patched": (llama_build("patched"), BUDGET_MIB),
    }
    runs: dict[str, list[Run]] = {name: [] for name in arms}
    for number in range(ROUNDS):
        for name in list(arms) if number % 2 == 0 else list(arms)[::-1]:
            build, budget = arms[name]
            runs[name].append(_under_pressure(build, model, budget, tmp_path))
    device = _device_mib_per_s(model.path, READERS)
    size = model.path.stat().st_size / MIB
    print(f"\n{model.disk}; model {size:.0f} MiB, limit {LIMIT_MIB} MiB, cache {BUDGET_MIB} MiB, {READERS} readers")
    for name in arms:
        _tell(name, runs[name])
    tokens = [[a.tokens for a in run.answers] for name in arms for run in runs[name]]
    assert all(text == tokens[0] for text in tokens), "the texts differ"
    decode = statistics.median(s.decode_s / p.decode_s for s, p in zip(runs["stock"], runs["patched"], strict=True))
    prefill = statistics.median(p.prefill_s / s.prefill_s for s, p in zip(runs["stock"], runs["patched"], strict=True))
    last = runs["patched"][-1]
    waited = last.counters["first_wait_ns"] / 1e9
    total = last.decode_s + last.prefill_s
    print(f"decode {decode:.2f} x stock's, prefill takes {prefill:.2f} x stock's time (medians of {ROUNDS} pairs)")
    print(
        f"of {total:.1f} s compute thread 0 waited {waited:.1f} s ({100 * waited / total:.0f} %) for "
        f"{last.counters['bytes_read'] / MIB:.0f} MiB; {last.counters['bytes_read'] / MIB / total:.0f} MiB/s over all, "
        f"the device alone {device:.0f} MiB/s at depth {READERS}"
    )
    assert decode >= 1.3
    assert prefill <= 1.0


@dataclass
class Cost:
    """CPU time of requests to one server, by request."""

    cpu_ns: list[int] = field(default_factory=list)


# Processes laid out alike: address randomisation alone makes two servers of one build differ by a tenth.
ALIKE = ("setarch", "-R")


def _alternate(arms: dict[str, Server], costs: dict[str, Cost], repeats: int, tokens: int) -> None:
    for number in range(repeats):
        for name in list(arms) if number % 2 == 0 else list(arms)[::-1]:
            before = _cpu_ns(arms[name].pid)
            arms[name].complete(PROMPTS[0], tokens)
            costs[name].cpu_ns.append(_cpu_ns(arms[name].pid) - before)


def _cost_over_stock(costs: dict[str, Cost]) -> tuple[list[float], list[float]]:
    """Per server, those of stock and the others: the median over rounds of its CPU time over stock's mean in the same
    round. What the machine does to all servers of a round, it does to both sides of the ratio."""
    stock = [name for name in costs if name.startswith("stock")]
    rounds = len(costs[stock[0]].cpu_ns)
    base = [statistics.mean(costs[name].cpu_ns[number] for name in stock) for number in range(rounds)]
    relative = {
        name: statistics.median(ns / of for ns, of in zip(cost.cpu_ns, base, strict=True))
        for name, cost in costs.items()
    }
    return [relative[name] for name in stock], [relative[name] for name in costs if name not in stock]


def _compare(costs: dict[str, Cost], what: str) -> tuple[float, float]:
    """The ratio of the mean server of an arm to stock's, and its standard error from the spread of servers."""
    stock, other = _cost_over_stock(costs)
    ratio = statistics.mean(other) / statistics.mean(stock)
    error = math.hypot(*(statistics.stdev(arm) / math.sqrt(len(arm)) for arm in (stock, other)))
    ms = statistics.median(ns for name, cost in costs.items() if name.startswith("stock") for ns in cost.cpu_ns) / 1e6
    rounds = len(next(iter(costs.values())).cpu_ns)
    print(
        f"{what}: {ratio:.4f} +- {error:.4f} (standard error) x the CPU time of stock, {ms:.1f} ms a request; "
        f"{len(stock)} servers of each, {rounds} requests to each"
    )
    return ratio, error


needs_setarch = pytest.mark.skipif(shutil.which("setarch") is None, reason="needs setarch to lay processes out alike")


@pytest.mark.perf
@pytest.mark.slow
@needs_setarch
def test_with_the_cache_off_the_patched_build_costs_what_stock_costs(
    llama_build: Callable[[str], Path], tmp_path: Path
) -> None:
    """One compute thread, so that a request's CPU time is its time on a machine that does nothing else. A small model:
    what our hooks cost a matrix product is the same for any size, so here it would weigh the most, and with all of it
    in the processor's cache the servers of one build differ by less than what is to be seen."""
    shape: dict[str, Any] = {
        "types": "q8_0", "n_embd": 256, "n_ff": 256, "n_layers": 8, "n_experts": 16, "n_used": 2,
    }  # fmt: skip
    small = make_model(tmp_path / "small.gguf", **shape).path
    builds = {"stock": llama_build("stock"), "cache off": llama_build("patched")}
    # One processor for all servers, of which one works at a time; what asks them has the others.
    here = (*ALIKE, "taskset", "-c", str(max(os.sched_getaffinity(0))))
    names = [(f"{arm} {number}", build) for number in range(8) for arm, build in builds.items()]
    costs = {name: Cost() for name, _ in names}
    with ExitStack() as stack:
        arms = {
            name: stack.enter_context(server(build, small, tmp_path, threads=1, env=CALM, before=here))
            for name, build in names
        }
        texts = {running.complete(PROMPTS[0], 32).tokens for running in arms.values() for _ in range(2)}
        assert len(texts) == 1
        _alternate(arms, costs, 100, 32)
    print()
    ratio, error = _compare(costs, f"cache off, a model of {small.stat().st_size / MIB:.0f} MiB")
    assert error < 0.004, "this machine is too busy for a comparison within a percent"
    assert ratio <= 1.01


@pytest.mark.perf
@pytest.mark.slow
@needs_setarch
def test_a_cache_that_holds_every_expert_is_as_fast_as_a_model_in_memory(
    llama_build: Callable[[str], Path], model: Model, tmp_path: Path
) -> None:
    stock, patched = llama_build("stock"), llama_build("patched")
    everything = math.ceil(model.path.stat().st_size / MIB * 1.1)
    plan: dict[str, tuple[Path, int | None]] = {
        "stock": (stock, None),
        "all in cache": (patched, everything),
        "stock, again": (stock, None),
        "all in cache, again": (patched, everything),
    }
    costs = {name: Cost() for name in plan}
    with ExitStack() as stack:
        arms = {
            name: stack.enter_context(server(b, model.path, tmp_path, cache_mib=mib, threads=1, env=CALM, before=ALIKE))
            for name, (b, mib) in plan.items()
        }
        texts = {running.complete(PROMPTS[0], SHORT).tokens for running in arms.values() for _ in range(2)}
        assert len(texts) == 1
        _alternate(arms, costs, 40, SHORT)
        assert arms["all in cache"].counters()["models"][0]["evictions"] == 0
    print()
    ratio, error = _compare(costs, "all in cache")
    assert error < 0.02, "this machine is too busy for a comparison within a few percent"
    assert ratio <= 1.05
