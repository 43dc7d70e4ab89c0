"""The llama-load workload: its command line, and what its raw output yields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.payloads.llama.llama_raw import FLOOR_HZ, LOWEST_HZ, lines, request, start, write

from boardbench.errors import InputError
from boardbench.results import quantities, schema
from boardbench.workloads.base import Durations, Samples
from boardbench.workloads.llama_load import LlamaLoad, model_files


def read(folder: Path, events: list[dict[str, Any]]) -> Samples:
    return LlamaLoad().read(write(folder, events))


def gates(samples: Samples) -> dict[str, str]:
    return {str(e["gate"]): str(e["why"]) for e in quantities.evidence_of(samples) if not e["ok"]}


def test_the_command_line_holds_every_option_of_the_arm() -> None:
    options = {"build": "patched", "threads": 4, "cache_mib": 2048, "floor": "up", "arguments": "--cpu-moe -ngl 99"}
    argv = LlamaLoad().argv("r1", options, Durations(300.0, 1.0, None, 0.5))
    assert argv[:4] == [
        "/usr/bin/python3", "/opt/boardbench/payloads/llama-load/llama-load", "--out",
        "/var/lib/boardbench/runs/r1/workload",
    ]  # fmt: skip
    pairs = dict(zip(argv[2::2], argv[3::2], strict=False))
    assert pairs["--build"] == "/opt/boardbench/payloads/llama-expert-cache/patched"
    assert (pairs["--threads"], pairs["--cache-mib"]) == ("4", "2048")
    # One word, since it begins with a dash itself.
    assert "--arguments=--cpu-moe -ngl 99" in argv
    assert argv[argv.index("--expect-floor") + 1] == "up"
    assert "--expect-cache" not in argv
    control = LlamaLoad().argv("r1", {**options, "cache": "idle"}, Durations(300.0, 1.0))
    assert control[control.index("--expect-cache") + 1] == "idle"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"thread": 4}, "no option 'thread'"),
        ({"threads": 0}, "option 'threads'"),
        ({"threads": "all"}, "option 'threads'"),
        ({"build": "best"}, "option 'build'"),
        ({"floor": "high"}, "option 'floor'"),
        ({"cache": "off"}, "option 'cache'"),
        ({"cache": "idle"}, "'idle', and the cache is off"),
        ({"model": "small.gguf"}, "option 'model'"),
        ({"cache_mib": 128}, "the stock build of llama.cpp has no expert cache"),
    ],
)
def test_an_option_without_sense_is_a_clear_mistake(options: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        LlamaLoad().argv("r1", options, Durations(1.0, 1.0))


def test_all_shards_of_a_model_must_be_cold() -> None:
    assert model_files({"model": "/m/a.gguf"}) == ("/m/a.gguf",)
    assert model_files({"model": "/m/a-00001-of-00003.gguf"}) == tuple(f"/m/a-0000{n}-of-00003.gguf" for n in (1, 2, 3))


def test_figures_are_sums_and_means_over_the_requests_and_missing_ones_say_why(tmp_path: Path) -> None:
    figures = read(tmp_path, lines()).figures
    assert figures["decode"].value == pytest.approx(8 / 3)  # 8 tokens in 2 s + 1 s, not the mean of 2 and 4
    assert figures["prefill"].value == 1.0
    assert figures["read-process"].value == figures["read"].value == 2 << 20
    assert (figures["read-device"].value, figures["read-device"].why) == (None, "no block device")
    assert (figures["cache-hits"].value, figures["cache-hits"].why) == (None, "no cache in this arm")
    assert figures["perplexity"].value == 6.2344
    assert figures["server-start"].value == 1.5
    assert set(figures) == set(LlamaLoad().traits.figures)


def test_bytes_of_the_block_device_are_quoted_where_there_is_one(tmp_path: Path) -> None:
    requests = [request(index, device_read_bytes=5 << 20, process_read_bytes=1) for index in range(2)]
    assert read(tmp_path, lines(*requests)).figures["read"].value == 10 << 20


def test_a_request_with_one_unknown_reading_leaves_the_sum_unknown(tmp_path: Path) -> None:
    requests = [request(0), request(1, process_read_bytes={"missing": "no such process"})]
    figure = read(tmp_path, lines(*requests)).figures["read"]
    assert (figure.value, figure.why) == (None, "no such process")


def test_a_whole_run_has_nothing_against_it_though_its_requests_do_not_join(tmp_path: Path) -> None:
    samples = read(tmp_path, lines())
    assert samples.window_monotonic_s == (10.0, 18.0)
    assert gates(samples) == {}


def test_fewer_answers_than_prompts_do_not_add_up(tmp_path: Path) -> None:
    samples = read(tmp_path, lines(request(0), start_more={"requests": 12}))
    assert "1 of 12 planned intervals" in gates(samples)["counts"]


def test_tokens_that_did_not_come_are_seen(tmp_path: Path) -> None:
    samples = read(tmp_path, lines(request(0, tokens=[1]), request(1)))
    assert "generated tokens" in gates(samples)["instruments"]


UP = {"lowest_hz": LOWEST_HZ, "min_hz": {str(LOWEST_HZ): 1, str(FLOOR_HZ): 19}, "cur_hz": {}}
SERVED = {"counters": {"models": [{"state": "served", "hits": 3, "misses": 1}]}}
BUDGET = {"cache_mib": 128}
IDLE = {**BUDGET, "expect_cache": "idle"}
NO_EXPERTS = {"counters": {"models": [{"state": "not served", "why": "it has no expert tensors on the CPU"}]}}


@pytest.mark.parametrize(
    ("start_more", "gpu", "cache", "why"),
    [
        ({"expect_floor": "up"}, UP, {}, ""),
        ({"expect_floor": "up"}, None, {}, "it should have been up (gpu-floor: gpu-floor is not installed)"),
        ({"expect_floor": "down"}, UP, {}, "up in 95 % of the looks, it should have been down"),
        ({"expect_floor": "down"}, None, {}, ""),
        ({"expect_floor": "up"}, {"missing": "no devfreq device"}, {}, "clocks are not known: no devfreq device"),
        (BUDGET, None, SERVED, ""),
        (BUDGET, None, {"counters": {"models": [{"state": "not served", "why": "no O_DIRECT"}]}}, "no O_DIRECT"),
        (BUDGET, None, {"counters": {"missing": "no counters within 5 s"}}, "no counters within 5 s"),
        (BUDGET, None, {"counters": {"models": [{"state": "served", "hits": 0, "misses": 0}]}}, "no expert was asked"),
        ({**BUDGET, "expect_cache": "used"}, None, SERVED, ""),
        (BUDGET, None, NO_EXPERTS, "it has no expert tensors on the CPU"),
        (IDLE, None, NO_EXPERTS, ""),
        (IDLE, None, SERVED, "the expert cache is served, it should have found nothing to serve"),
        (IDLE, None, {"counters": {"missing": "no counters within 5 s"}}, "no counters within 5 s"),
    ],
)
def test_an_arm_that_did_nothing_to_the_load_is_told(
    tmp_path: Path, start_more: dict[str, Any], gpu: dict[str, Any] | None, cache: dict[str, Any], why: str
) -> None:
    requests = [request(index, **({} if gpu is None else {"gpu": gpu})) for index in range(2)]
    found = gates(read(tmp_path, lines(*requests, start_more=start_more, cache=cache)))
    assert found.get("arm-effect", "") == "" if not why else why in found["arm-effect"]


def test_a_floor_that_can_see_nothing_on_a_virtual_board_is_noted_and_not_held_against_the_run(tmp_path: Path) -> None:
    blind = {"status": {"state": "blind", "problems": ["the controller runs in a container"]}}
    samples = read(tmp_path / "virtual", lines(start_more={"expect_floor": "up"}, floor=blind))
    assert gates(samples) == {}
    assert samples.effects[0].saw["not_acting"] == "the controller runs in a container"
    real = read(tmp_path / "real", lines(start_more={"expect_floor": "up", "virtual": False}, floor=blind))
    assert "it should have been up" in gates(real)["arm-effect"]


def test_a_cache_that_rests_as_it_should_is_noted_with_its_own_words(tmp_path: Path) -> None:
    (effect,) = read(tmp_path, lines(start_more=IDLE, cache=NO_EXPERTS)).effects
    assert effect.saw == {
        "budget_mib": 128, "state": "not served", "expected": "idle",
        "cache_says": "it has no expert tensors on the CPU",
    }  # fmt: skip


def test_the_share_of_hits_comes_from_the_last_counters(tmp_path: Path) -> None:
    assert read(tmp_path, lines(cache=SERVED)).figures["cache-hits"].value == 0.75


def test_a_load_that_was_cut_off_keeps_its_whole_requests(tmp_path: Path) -> None:
    folder = write(tmp_path, [start(), request(0)], '{"event": "requ')
    samples = LlamaLoad().read(folder)
    assert (len(samples.intervals), samples.ended_by_itself, samples.end_stamp) == (1, False, None)
    assert samples.figures["perplexity"].value is None


@pytest.mark.parametrize(
    "events",
    [
        [request(0)],
        [start(), start()],
        [start(), request(1)],
        [start(), request(0, predicted_ms=0)],
        [start(), request(0, prompt_ms=float("nan"))],
        [start(), request(0, process_read_bytes=None)],
        [start(), request(0), request(1, start_monotonic_s=11.0)],
        [start(), {"event": "requst"}],
        [*lines(), request(2)],
    ],
)
def test_a_malformed_file_is_told_with_its_line(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match=r"llama\.jsonl:\d+"):
        LlamaLoad().read(write(tmp_path, events))


def test_every_line_fits_its_schema_and_a_strange_one_does_not() -> None:
    for line in [*lines(), *lines(perplexity={"value": {"missing": "not asked for"}})]:
        assert list(schema.faults(line, "llama.line")) == []
    assert list(schema.faults(request(0, text_sha256=1), "llama.line"))
