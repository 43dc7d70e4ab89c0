"""The expert cache without llama.cpp: every byte, the order of eviction, faults, races; and the tests themselves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .driver_build import CACHE, build, drive, have_compiler

pytestmark = pytest.mark.skipif(not have_compiler(), reason="no g++ here")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`driver("plain"|"thread"|"address")`, built once a session."""
    built: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in built:
            built[kind] = build(kind, tmp_path_factory.mktemp(f"driver-{kind}"))
        return built[kind]

    return get


@pytest.mark.parametrize("seed", [1, 2])
def test_hits_misses_and_evictions_equal_a_plain_lru(driver: Callable[[str], Path], seed: int) -> None:
    assert drive(driver("plain"), "lru", seed, 10)["passes"] == 300


@pytest.mark.parametrize("kind", ["plain", "thread", "address"])
def test_bytes_are_right_under_slow_short_and_reordered_reads(driver: Callable[[str], Path], kind: str) -> None:
    assert drive(driver(kind), "stress", 11, 3)["operations"] > 500


@pytest.mark.parametrize("kind", ["plain", "thread", "address"])
def test_a_failing_read_is_told_and_the_next_token_is_right(driver: Callable[[str], Path], kind: str) -> None:
    done = drive(driver(kind), "failing", 5, 4)
    assert done["failed_passes"] > 5
    assert done["good_passes_after"] == 40


@pytest.mark.parametrize("kind", ["thread", "address"])
def test_exact_order_holds_under_sanitizers(driver: Callable[[str], Path], kind: str) -> None:
    assert drive(driver(kind), "lru", 3, 3)["passes"] == 90


def test_direct_reads_of_real_files_at_any_offset(driver: Callable[[str], Path], tmp_path: Path) -> None:
    assert drive(driver("address"), "files", 1, tmp_path)["bytes_read"] > 100e6


def test_a_warmup_run_reads_nothing(driver: Callable[[str], Path]) -> None:
    assert drive(driver("plain"), "warmup", 1, 50) == {"scenario": "warmup", "warmups": 50, "reads": 0}


def test_memory_stays_within_the_budget_with_units_of_many_sizes(driver: Callable[[str], Path]) -> None:
    assert 80 <= drive(driver("plain"), "memory", 1, 30)["most_resident_mib"] <= 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "thread", "address"])
@pytest.mark.parametrize("seed", range(20, 26))
def test_long_stress(driver: Callable[[str], Path], kind: str, seed: int) -> None:
    rounds = 30 if kind == "plain" else 10
    drive(driver(kind), "stress", seed, rounds)
    drive(driver(kind), "failing", seed, rounds)
    drive(driver(kind), "lru", seed, rounds)


# Each change brings back a bug that was met in the field, or takes away a guard; the driver must see every one.
BUGS = {
    "slots without the extra page": (
        "geometry.h",
        "round_up(slice_bytes) + kPage",
        "slice_bytes / kPage * kPage + kPage",
    ),
    "readiness asked twice": (
        "operations.cpp",
        "    while (cursor->index < op->count && is_visited(*cursor, cursor->index)) {",
        "    while (cursor->index < op->count && (is_visited(*cursor, cursor->index) ||\n"
        "           (cursor->index < op->at_begin &&\n"
        "            op->entries[static_cast<size_t>(cursor->index)].unit->progress[op->kind].load() == 0))) {",
    ),
    "a failed read taken for a good one": ("readers.cpp", "(*first_failure ? kFailure : 0)", "0"),
    "units in use are evicted": (
        "admission.cpp",
        "        if (!claim(unit)) {",
        "        if (!claim(unit) && unit->newer != nullptr) {",
    ),
    "order of insertion instead of use": (
        "admission.cpp",
        "            lru_.touch(unit);\n        }\n    });",
        "        }\n    });",
    ),
    "the window not rounded outward": ("geometry.h", "round_up(offset + bytes)}", "round_down(offset + bytes)}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_the_driver_sees_known_bugs(tmp_path: Path, bug: str) -> None:
    name, right, wrong = BUGS[bug]
    cache = tmp_path / "cache"
    shutil.copytree(CACHE, cache)
    text = (cache / name).read_text()
    assert text.count(right) == 1, f"{name} no longer holds the line that {bug!r} changes"
    (cache / name).write_text(text.replace(right, wrong))
    program = build("plain", tmp_path, cache)
    seen = 0
    for scenario, rounds in (("lru", 8), ("stress", 4), ("failing", 4)):
        try:
            drive(program, scenario, 1, rounds, timeout_s=60)
        except Exception:
            seen += 1
    assert seen > 0
