"""What reports and ledgers of large campaigns cost. Counted in processor seconds, for others use the machine too."""

from __future__ import annotations

import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from boardbench.report.ledger_page import ledger_page, main_figures
from boardbench.report.page import html, vega
from boardbench.report.page.native import native_page
from boardbench.results import ledger, ledger_versions
from boardbench.results.columns import write

if "made_campaign" not in sys.modules:
    _path = Path(__file__).parents[1] / "unit" / "report" / "made_campaign.py"
    _spec = importlib.util.spec_from_file_location("made_campaign", _path)
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["made_campaign"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["made_campaign"])

from made_campaign import Wanted, make

pytestmark = pytest.mark.perf

SKETCH = """
import resource, sys, time
from pathlib import Path
from boardbench.results.columns import sketch_of
began = time.process_time()
sketch = sketch_of([Path(name) for name in sys.argv[1:]])
print(sketch.count, time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def spent(work: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    before = time.process_time()
    work()
    return time.process_time() - before


def test_a_page_of_31_minutes_on_three_boards_takes_under_3_s(tmp_path: Path) -> None:
    campaign = make(tmp_path, Wanted(duration_s=1860))
    vega.bundle()  # made once per version of the library, then kept
    written: list[str] = []
    seconds = spent(lambda: written.append(html.render(native_page(campaign))))
    print(f"page of 2 x 3 x 31 min at 1 s: {seconds:.2f} s of processor, {len(written[0]) / 1e6:.1f} MB")
    assert seconds < 3.0
    assert len(written[0]) < 4_000_000


def test_a_page_grows_with_its_charts_not_with_its_readings(tmp_path: Path) -> None:
    small = html.render(native_page(make(tmp_path / "a", Wanted(duration_s=1860, boards=("king",)))))
    large = html.render(native_page(make(tmp_path / "b", Wanted(duration_s=18600, boards=("king",)))))
    assert len(large) < 1.5 * len(small)


def test_the_ledger_of_10_000_runs_takes_under_10_s(tmp_path: Path) -> None:
    results = tmp_path / "results"
    boards = tuple(f"board{at:02d}" for at in range(25))
    for at in range(100):  # 100 campaigns of 100 runs
        make(results, Wanted(campaign=f"20261130T152429Z-{at:08x}", boards=boards, repeats=2, duration_s=60, log=False))
    found: list[list[ledger.Entry]] = []
    first = spent(lambda: found.append(ledger.entries(results, main_figures)))
    again = spent(lambda: found.append(ledger.entries(results, main_figures)))
    book = ledger_versions.next_version(None, found[0])
    page = spent(lambda: html.render(ledger_page(book, results)))
    print(f"ledger of 10,000 runs: {first:.2f} s first, {again:.2f} s again, page {page:.2f} s of processor")
    assert sum(entry.cells for entry in found[0]) == 10_000
    assert found[0] == found[1]
    assert first + page < 10.0
    assert again + page < 10.0


def test_samples_are_counted_in_bounded_memory(tmp_path: Path) -> None:
    """100 million samples are 10 of these files; what they need does not grow with their number."""
    values = np.random.default_rng(1).lognormal(4, 1, 10_000_000)
    path = tmp_path / "requests.parquet"
    write(path, {"latency_ms": values, "ok": np.ones(len(values), dtype=bool)})
    del values
    needed = []
    for copies in (1, 4):
        told = subprocess.run([sys.executable, "-c", SKETCH, *[str(path)] * copies], capture_output=True, text=True,
                              check=True).stdout.split()  # fmt: skip
        needed.append((int(told[0]), float(told[1]), int(told[2]) / 1024))
    print(f"samples, processor s, MiB: {needed}")
    (few, few_s, few_mib), (many, many_s, many_mib) = needed
    assert (few, many) == (10_000_000, 40_000_000)
    assert many_s < 8 * few_s
    assert many_mib < few_mib + 600
    assert many_mib < 2048
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 < 4096
