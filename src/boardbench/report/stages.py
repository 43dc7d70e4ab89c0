"""The table of stages: what a campaign of `llama-load` has to show for each arm, beside its named baseline.

A figure is the median over an arm's runs that count. A ratio stands beside the baseline that it is against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from boardbench.results import sameness
from boardbench.results.raw import read_thermal
from boardbench.results.sampled import Sampled, read_all
from boardbench.results.verdict import whole_run
from boardbench.workloads.llama_samples import GIB

WORKLOAD = "llama-load"
FIGURES = ("decode", "prefill", "read", "perplexity", "cache-hits", "gpu-floor")


@dataclass(frozen=True)
class Stage:
    """An arm on a board. Figures in base units (tokens/s, s, bytes, share); None where none of its runs has one.

    `text_equal`: whether all its runs answered as the baseline did. `gpu_hz`: the clock at
    which the GPU stood most of the time, and the share of the log's rows inside the load. `floor_not_acting`: why the
    floor did nothing; `cache_idle`: why a cache had nothing to serve that was to have nothing; else empty.
    """

    board: str
    arm: str
    baseline: str | None
    runs: int
    counted: int
    figures: Mapping[str, float | None]
    ratio: float | None
    text_equal: bool
    gpu_hz: tuple[float, float] | None
    read_from: str
    limited: bool | None
    floor_not_acting: str
    cache_idle: str

    def as_json(self) -> dict[str, object]:
        """The stage by name with units; null where there is no figure."""
        read, clock = self.figures["read"], self.gpu_hz
        return {
            "board": self.board,
            "stage": self.arm,
            "baseline": self.baseline,
            "runs": self.runs,
            "runs_counted": self.counted,
            "decode_tokens_per_s": self.figures["decode"],
            "decode_ratio": self.ratio,
            "prefill_s": self.figures["prefill"],
            "read_gib": None if read is None else read / GIB,
            "read_from": self.read_from,
            "text_equal": self.text_equal,
            "perplexity": self.figures["perplexity"],
            "cache_hit_share": self.figures["cache-hits"],
            "gpu_floor_share_of_looks": self.figures["gpu-floor"],
            "gpu_clock_hz": None if clock is None else clock[0],
            "gpu_clock_share": None if clock is None else clock[1],
            "memory_limit_in_force": self.limited,
            "gpu_floor_not_acting": self.floor_not_acting or None,
            "expert_cache_idle": self.cache_idle or None,
        }


def load_stages(folder: Path, plan: Mapping[str, Any]) -> tuple[Stage, ...]:
    """The stages of a campaign; none for one of another workload. Reads the attempts' files."""
    if plan["workload"]["name"] != WORKLOAD:
        return ()
    runs = _runs(folder)
    sampled = read_all(folder, plan, [run for run, _ in runs.values()])
    against, differ = sameness.baselines(plan, sampled), sameness.differing(plan, sampled)
    found: list[Stage] = []
    for board in dict.fromkeys(run.board for run in sampled):
        for arm in dict.fromkeys(cell["arm"] for cell in _in_file_order(plan)):
            mine = [run for run in sampled if (run.board, run.arm) == (board, arm)]
            if mine:
                found.append(_stage(board, arm, mine, {name: one.arm for name, one in against.items()}, differ, runs))
    return tuple(_with_ratios(found))


def _in_file_order(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    order = [arm["name"] for arm in plan["arms"]]
    return sorted(plan["cells"], key=lambda cell: order.index(cell["arm"]))


def _runs(folder: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """Name of a run -> its run.json and folder; of each cell the last valid attempt."""
    found: dict[str, tuple[dict[str, Any], Path]] = {}
    for cell in sorted((folder / "cells").glob("*")):
        attempts = sorted(cell.glob("attempt-*[0-9]"), key=lambda path: int(path.name.removeprefix("attempt-")))
        whole = [(run, path) for path in attempts if (run := whole_run(path)) is not None and run["valid"]]
        if whole:
            found[whole[-1][0]["run"]] = whole[-1]
    return found


def _stage(
    board: str,
    arm: str,
    mine: Sequence[Sampled],
    against: Mapping[str, str],
    differ: Mapping[str, object],
    runs: Mapping[str, tuple[dict[str, Any], Path]],
) -> Stage:
    good = [run for run in mine if run.run not in differ]
    figures = {name: _median([run.samples.figures[name].value for run in good]) for name in FIGURES}
    by_device = any(run.samples.figures["read-device"].value is not None for run in good)
    evidence = [entry for run in mine for entry in runs[run.run][0]["evidence"]]
    limits = [entry["ok"] for entry in evidence if entry["gate"] == "limits"]
    effects = [entry["saw"] for entry in evidence if entry["gate"] == "arm-effect"]
    floors = [saw.get("GPU floor", {}) for saw in effects]
    caches = [saw.get("expert cache", {}) for saw in effects]
    return Stage(
        board=board,
        arm=arm,
        baseline=against.get(mine[0].run),
        runs=len(mine),
        counted=len(good),
        figures=figures,
        ratio=None,
        text_equal=len(good) == len(mine),
        gpu_hz=_gpu_clock([runs[run.run] for run in good]),
        read_from="block device" if by_device else "server process",
        limited=all(limits) if limits else None,
        floor_not_acting=next((str(saw["not_acting"]) for saw in floors if "not_acting" in saw), ""),
        cache_idle=next((str(saw["cache_says"]) for saw in caches if "cache_says" in saw), ""),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None


def _with_ratios(stages: Sequence[Stage]) -> list[Stage]:
    decode = {(stage.board, stage.arm): stage.figures["decode"] for stage in stages}
    found: list[Stage] = []
    for stage in stages:
        mine, base = stage.figures["decode"], decode.get((stage.board, stage.baseline or ""))
        ratio = mine / base if mine is not None and base else None
        found.append(Stage(**{**stage.__dict__, "ratio": ratio}))
    return found


def _gpu_clock(runs: Sequence[tuple[dict[str, Any], Path]]) -> tuple[float, float] | None:
    """The GPU's most frequent clock in the logs' rows inside the load windows, and its share of them."""
    seen: dict[float, int] = {}
    for run, folder in runs:
        log, _ = read_thermal(folder / "thermal.csv")
        window = run["load_window_monotonic_s"]
        if log is None or "gpu_cur_hz" not in log.columns or not isinstance(window, list):
            return None
        for at_s, hz in zip(log.clock("monotonic_s"), log.column("gpu_cur_hz"), strict=True):
            if hz is not None and window[0] <= at_s <= window[1]:
                seen[hz] = seen.get(hz, 0) + 1
    if not seen:
        return None
    most = max(seen, key=lambda hz: seen[hz])
    return most, seen[most] / sum(seen.values())


def _shown(value: float | None, digits: int, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def stages_table(stages: Sequence[Stage], empty: Table) -> Table:
    """The table for people; `empty`: a table with the columns of `COLUMNS`."""
    for stage in stages:
        figures, clock = stage.figures, stage.gpu_hz
        same = "[green]yes[/]" if stage.text_equal else "[bold red]no[/]"
        empty.add_row(
            escape(stage.board),
            escape(stage.arm),
            _shown(figures["decode"], 2),
            _shown(stage.ratio, 2),
            _shown(figures["prefill"], 2),
            _shown(figures["read"], 2, 1 / GIB),
            same,
            _shown(figures["perplexity"], 4),
            _shown(figures["cache-hits"], 0, 100),
            "-" if clock is None else f"{clock[0] / 1e6:.0f} ({100 * clock[1]:.0f} %)",
            f"{stage.counted}/{stage.runs}",
        )
    return empty


NUMERIC = ("decode\ntok/s", "ratio", "prefill\ns", "read\nGiB", "perplexity", "hits\n%", "GPU MHz\n(share)")
COLUMNS = ("board", "stage", *NUMERIC[:4], "text\nequal", *NUMERIC[4:], "runs")


def stage_notes(stages: Sequence[Stage], virtual: bool) -> list[str]:
    """What the table does not say by itself."""
    lines = [f"ratio: decode against {_listed(stage.baseline or '-' for stage in stages)}; decode: all generated tokens"
             " over the server's decode time; prefill: mean of a prompt; medians over runs"]  # fmt: skip
    lines.append(f"read: by the {_listed(stage.read_from for stage in stages)}, while the prompts were answered")
    if any(stage.limited is False for stage in stages):
        lines.append("the memory limit is not in force on this board: the whole model may stay in the page cache")
    for why in dict.fromkeys(stage.floor_not_acting for stage in stages if stage.floor_not_acting):
        arms = ", ".join(stage.arm for stage in stages if stage.floor_not_acting == why)
        lines.append(f"the floor did not act in {arms}: {why}")
    for stage in stages:
        if stage.cache_idle:
            lines.append(f"the expert cache of {stage.arm} had nothing to serve: {stage.cache_idle}")
    if virtual:
        lines.append("a virtual board has no GPU that could become faster: its floor shows in the clock only")
    return lines


def _listed(words: Any) -> str:
    return " or ".join(dict.fromkeys(words))
