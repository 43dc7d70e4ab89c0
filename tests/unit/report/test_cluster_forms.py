"""A cluster in every form of report: the same figures from one source, and nothing of them without a cluster."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import altair
import pytest

from boardbench.analysis.percentiles import nearest_rank
from boardbench.report.cluster import Cluster, cluster_of
from boardbench.report.cluster_tables import tables
from boardbench.report.page import html, markdown, vega
from boardbench.report.page.cluster_section import cluster_section
from boardbench.report.page.model import Page, Section
from boardbench.report.page.native import native_page
from boardbench.report.page.pages import document_of
from boardbench.report.rows import campaign_csv
from boardbench.results import schema, store, verdict

from . import made_campaign, made_cluster


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_cluster.make(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def page(campaign: Path) -> Page:
    return native_page(campaign)


def section(page: Page, key: str) -> Section:
    return next(one for one in page.sections if one.key == key)


def rows(campaign: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(campaign_csv(campaign))))


def exact_ms(percentile: float) -> float:
    """By hand: the percentile of all good requests of arm nodes3."""
    every = [1000 * made_cluster.latency_s(3, repetition, at) for repetition in (1, 2) for at in range(720)]
    return nearest_rank(sorted(every), percentile)


def test_the_made_cluster_is_one_that_the_schemas_know(campaign: Path) -> None:
    for name in ("campaign", "plan", "verdict"):
        assert list(schema.faults(store.read_object(campaign / f"{name}.json"), name)) == []
    runs = [store.read_object(path) for path in campaign.glob("cells/*/*/run.json")]
    assert len(runs) == 12
    assert [fault for run in runs for fault in schema.faults(run, "run")] == []


def test_the_direct_rate_is_that_of_a_virtual_boards_stretched_world(tmp_path: Path) -> None:
    # 12 requests a second and node.
    slow = cluster_of(made_cluster.make(tmp_path, options={"direct_per_s": 60.0, "stretch": 4}))
    assert [arm.residual for arm in slow.arms] == [pytest.approx(1 - 12 / 15)] * 2


def test_every_form_has_the_same_pooled_percentile_and_scaling(campaign: Path, page: Page) -> None:
    document: dict[str, Any] = document_of(campaign)
    one, three = document["cluster"]
    assert (one["arm"], three["arm"]) == ("nodes1", "nodes3")
    assert three["latency_pooled_ms"]["p99"] == pytest.approx(exact_ms(99))
    assert three["scaling"] == {"against": "nodes1", "speedup": 3.0, "efficiency": 1.0}
    load = [row for row in rows(campaign) if row["board"] == "jetson" and row["arm"] == "nodes3"]
    assert len(load) == 2
    assert {float(row["arm_latency_pooled_ms_p99"]) for row in load} == {three["latency_pooled_ms"]["p99"]}
    assert {(row["arm_scaling_speedup"], row["arm_scaling_efficiency"]) for row in load} == {("3.0", "1.0")}
    for text in (html.render(page), markdown.render(page)):
        assert f"{exact_ms(99):.1f}" in text
        assert "3.00" in text
        assert "100.0%" in text


def test_pooled_is_not_the_mean_of_runs_and_both_have_their_name(campaign: Path) -> None:
    three = document_of(campaign)["cluster"][1]
    own = [
        float(row["load_latency_ms_p99"]) for row in rows(campaign) if row["arm"] == "nodes3" and row["load_under_way"]
    ]
    assert three["latency_run_level_mean_ms"]["p99"] == pytest.approx(sum(own) / 2)
    assert three["latency_run_level_mean_ms"]["p99"] != pytest.approx(three["latency_pooled_ms"]["p99"], rel=0.01)


def test_the_page_has_four_tables_and_two_charts_that_vega_lite_accepts(page: Page) -> None:
    found = section(page, "cluster")
    assert [table.columns[0] for table in found.tables] == ["arm", "arm", "arm", "stage"]
    assert [row[0] for row in found.tables[0].rows] == ["nodes1", "nodes3"]
    assert [chart.key for chart in found.charts] == ["cluster-rate", "cluster-latency"]
    for chart in found.charts:
        assert len(chart.says) > 60
        altair.Chart.from_dict(vega.whole_spec(chart))
    (ideal,) = found.charts[0].data["ideal"]
    assert list(ideal.rows()) == [{"t": 0, "v": 0.0}, {"t": 3, "v": pytest.approx(36.0)}]


def test_a_stage_that_nobody_measured_says_so_and_why(page: Page) -> None:
    stages = section(page, "cluster").tables[-1]
    told = {row[0]: row[1:] for row in stages.rows}
    assert told["inference"] == ("14.00", "14.00")
    assert told["decode"] == told["residual"] == ("not measured", "not measured")
    assert stages.notes == (f"decode: {made_cluster.UNFILLED}.",)


def test_in_csv_what_is_not_known_is_empty_and_boards_of_a_cluster_have_no_figure_of_it(campaign: Path) -> None:
    found = rows(campaign)
    assert {row["arm_residual_to_direct"] for row in found} == {""}
    assert {row["arm_stage_p50_ms_decode"] for row in found} == {""}
    assert {row["arm_inferences_per_s"] for row in found if row["board"] != "jetson"} == {""}
    assert all(row["load_node_p50_ms_king"] for row in found if row["board"] == "jetson")


def test_the_latency_chart_is_of_the_requests_that_the_load_generator_wrote(page: Page) -> None:
    (chart,) = section(page, "latencies").charts
    assert chart.table is not None
    table = {row[1]: row for row in chart.table.rows}
    assert (table["nodes3"][0], table["nodes3"][2]) == ("jetson", 1440)  # the one that failed is left out
    assert table["nodes3"][-1] == pytest.approx(exact_ms(100))
    quoted = next(part for part in chart.data["quoted"] if part.same == {"s": "nodes3"})
    p99 = next(row["t"] for row in quoted.rows() if row["what"] == "p99")
    assert p99 == pytest.approx(exact_ms(99), rel=0.006)


def test_arms_of_one_node_count_have_no_chart_of_scaling(tmp_path: Path) -> None:
    found = cluster_section(cluster_of(made_cluster.make(tmp_path, arms=(3,), repeats=1)))
    assert found is not None
    assert [chart.key for chart in found.charts] == ["cluster-latency"]
    assert "No speed-up: all arms have as many nodes." in found.tables[0].notes


def test_a_run_that_the_verdict_does_not_count_is_in_no_figure(tmp_path: Path) -> None:
    folder = made_cluster.make(tmp_path, repeats=1)
    (path,) = folder.glob("cells/*-nodes3-jetson/attempt-1/run.json")
    run = store.read_object(path)
    reasons = [{"code": "gate-failed", "detail": "made up"}]
    path.write_bytes(store.to_bytes({**run, "valid": False, "invalid_reasons": reasons}))
    plan = store.read_object(folder / "plan.json")
    made = verdict.make(folder, plan, verdict.Ending({}, False, {}))
    (folder / "verdict.json").write_bytes(store.to_bytes(made))
    assert [arm.arm for arm in cluster_of(folder).arms] == ["nodes1"]


def test_a_campaign_without_a_cluster_has_nothing_of_one_in_any_form(tmp_path: Path) -> None:
    folder = made_campaign.make(tmp_path, made_campaign.Wanted(duration_s=120, log=False))
    assert cluster_of(folder) == Cluster()
    assert cluster_section(cluster_of(folder)) is None
    assert tables(()) == ()
    assert "cluster" not in document_of(folder)
    assert campaign_csv(folder).splitlines()[0].endswith(",thermal_samples")
    made = native_page(folder)
    assert [one.key for one in made.sections] == [
        "plan", "conditions", "throughput-over-time", "validity", "domain", "again",
    ]  # fmt: skip
    assert "cluster" not in markdown.render(made).lower()
