"""Does a campaign's folder hold what it says? Trusts nothing: hashes, schemas and judgements are all made again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.results import answers, manifest, raw, record, schema, store, verdict
from boardbench.results.judge import Rules, judge
from boardbench.results.problems import Problem

_CAMPAIGN = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}")
_ATTEMPT = re.compile(r"attempt-([1-9][0-9]*)")
_ROOM = {"campaign.json", "plan.json", "journal.jsonl", "boards", "cells", "verdict.json", "MANIFEST.sha256"}
WINDOW_NOISE_S = 1e-6


def validate(path: Path) -> list[Problem]:
    """Everything that is wrong with a campaign's folder, or with all campaigns of a results folder; sorted.

    `Problem.file` is relative to `path`. An empty list: every cell has a valid run, and every file is as it was
    written. Raises InputError when there is nothing to check.
    """
    if not path.is_dir():
        raise InputError("is not a folder", where=str(path), advice="give a campaign's folder or the results folder")
    if (path / "campaign.json").exists() or _CAMPAIGN.fullmatch(path.resolve().name):
        return sorted(set(_campaign(path)))
    found = [p for p in sorted(path.glob("*")) + sorted(path.glob("*/*")) if p.is_dir() and _is_campaign(p)]
    if not found:
        raise InputError("there is no campaign in it", where=str(path), advice="run a matrix first")
    problems: list[Problem] = []
    for folder in found:
        name = folder.relative_to(path).as_posix()
        problems += [Problem(f"{name}/{p.file}", p.line, p.what) for p in set(_campaign(folder))]
    return sorted(problems)


def _is_campaign(folder: Path) -> bool:
    return _CAMPAIGN.fullmatch(folder.name) is not None


def _campaign(folder: Path) -> Iterator[Problem]:
    if _is_imported(folder):
        from boardbench.imports.check import check  # it needs this package itself

        yield from check(folder)
        return
    yield from manifest.check(folder)
    yield from _names(folder)
    documents: dict[str, Mapping[str, Any] | None] = {}
    for name in ("campaign", "plan", "verdict"):
        documents[name], problems = _document(folder, f"{name}.json", name)
        yield from problems
    yield from _lines(folder, "journal.jsonl", "journal.line")
    for facts in sorted(folder.glob("boards/*/facts-*.json")):
        yield from _document(folder, facts.relative_to(folder).as_posix(), "facts")[1]
    plan, campaign, stored = documents["plan"], documents["campaign"], documents["verdict"]
    if plan is None:
        return
    yield from _plan(folder, plan, campaign)
    runs: list[Mapping[str, Any]] = []
    for attempt in sorted(folder.glob("cells/*/attempt-*")):
        yield from _attempt(folder, attempt, plan, campaign, runs)
    yield from _cells(folder, plan, stored, runs)


def _is_imported(folder: Path) -> bool:
    try:
        return "imported" in store.read_object(folder / "campaign.json")
    except InputError:
        return False


def _names(folder: Path) -> Iterator[Problem]:
    for path in sorted(folder.iterdir()):
        if path.name not in _ROOM:
            yield Problem(path.name, None, "does not belong into a campaign's folder")
    for path in sorted(folder.glob("cells/*/*")):
        if not _ATTEMPT.fullmatch(path.name):
            name = path.relative_to(folder).as_posix()
            yield Problem(name, None, "is no attempt: a collect that did not come to its end, or a stranger")
    for path in folder.rglob("*"):
        if path.is_symlink():
            yield Problem(path.relative_to(folder).as_posix(), None, "is a link")


def _document(folder: Path, name: str, schema_name: str) -> tuple[dict[str, Any] | None, list[Problem]]:
    """The object in a file, and what is wrong with it; the object is None unless the schema holds."""
    try:
        value = store.read_object(folder / name)
    except InputError as error:
        return None, [_problem(folder, name, error)]
    problems = [Problem(name, None, fault) for fault in schema.faults(value, schema_name)]
    if (folder / name).read_bytes() != store.to_bytes(value) and schema_name != "thermal.meta":
        problems.append(Problem(name, None, "is not in the form that boardbench writes: it was edited"))
    return (None if problems else value), problems


def _problem(folder: Path, name: str, error: InputError) -> Problem:
    # `where` is the path, perhaps with a line after it.
    tail = error.where.removeprefix(str(folder / name)).removeprefix(":")
    return Problem(name, int(tail) if tail.isdigit() else None, error.what)


def _lines(folder: Path, name: str, schema_name: str) -> Iterator[Problem]:
    try:
        for number, value in store.read_lines(folder / name):
            for fault in schema.faults(value, schema_name):
                yield Problem(name, number, fault)
    except InputError as error:
        yield _problem(folder, name, error)


def _plan(folder: Path, plan: Mapping[str, Any], campaign: Mapping[str, Any] | None) -> Iterator[Problem]:
    body = {key: value for key, value in plan.items() if key != "sha256"}
    if store.canonical_sha256(body) != plan["sha256"]:
        yield Problem("plan.json", None, "was changed: it does not have the hash that it holds")
    if campaign is None:
        return
    if campaign["plan_sha256"] != plan["sha256"]:
        yield Problem("plan.json", None, "is not the plan that campaign.json locked")
    if campaign["time_scale"] != plan["time_scale"] or campaign["matrix"] != plan["matrix"]:
        yield Problem("campaign.json", None, "does not fit to plan.json")
    if campaign["campaign"] != folder.resolve().name:
        yield Problem("campaign.json", None, f"is of campaign {campaign['campaign']}, the folder has another name")
    for entry in campaign["boards"]:
        if "missing" not in entry["clock"] and not (folder / "boards" / entry["name"] / "facts-before.json").exists():
            yield Problem(f"boards/{entry['name']}/facts-before.json", None, "is missing")


def _attempt(
    folder: Path,
    attempt: Path,
    plan: Mapping[str, Any],
    campaign: Mapping[str, Any] | None,
    runs: list[Mapping[str, Any]],
) -> Iterator[Problem]:
    place = attempt.relative_to(folder).as_posix()
    name = f"{place}/{record.NAME}"
    run, problems = _document(folder, name, "run")
    yield from problems
    if run is None:
        return
    wrong = list(_listed(attempt, place, run))
    yield from wrong
    yield from _belongs(attempt, name, run, plan, campaign)
    yield from _raw(folder, attempt, place, run)
    yield from _answers(attempt, name, run, campaign)
    if wrong:
        return
    runs.append(run)
    again = judge(
        attempt, record.facts_of(run), Rules.of_plan(plan, run["boards"][0], run["phase"], run["workload"]["raw_files"])
    )
    if run["valid"] and again:
        said = "; ".join(f"{reason.code}: {reason.detail}" for reason in again)
        yield Problem(name, None, f"says valid, but its files say {said}")


def _listed(attempt: Path, place: str, run: Mapping[str, Any]) -> Iterator[Problem]:
    listed = {entry["name"]: entry for entry in run["files"]}
    present = {str(entry["name"]): entry for entry in record.list_files(attempt)}
    for name in sorted(listed.keys() | present.keys()):
        if name not in present:
            yield Problem(f"{place}/{name}", None, "is missing; run.json lists it")
        elif name not in listed:
            yield Problem(f"{place}/{name}", None, "is not in the list of run.json")
        elif present[name] != listed[name]:
            yield Problem(f"{place}/{name}", None, "was changed: its hash is not the one in run.json")


def _belongs(
    attempt: Path, name: str, run: Mapping[str, Any], plan: Mapping[str, Any], campaign: Mapping[str, Any] | None
) -> Iterator[Problem]:
    cell = next((cell for cell in plan["cells"] if cell["name"] == attempt.parent.name), None)
    if cell is None:
        yield Problem(name, None, "belongs to a cell that is not in the plan")
        return
    arm = next((arm for arm in plan["arms"] if arm["name"] == cell["arm"]), None)
    expected: dict[str, object] = {
        "cell": cell["name"],
        "boards": cell["boards"],
        "repetition": cell["repetition"],
        "arm": arm["levels"] if arm else None,
        "phase": arm["phase"] if arm and cell.get("role") != "load" else None,
        "attempt": int(attempt.name.removeprefix("attempt-")) if _ATTEMPT.fullmatch(attempt.name) else None,
        "time_scale": plan["time_scale"],
        "logger_period_s": plan["wall_time"]["logger_period_s"],
    }
    if campaign is not None:
        expected |= {"campaign": campaign["campaign"], "virtual": campaign["virtual"]}
    for key, value in expected.items():
        if run[key] != value:
            yield Problem(name, None, f"{key} is {run[key]!r}, the plan has {value!r}")


def _raw(folder: Path, attempt: Path, place: str, run: Mapping[str, Any]) -> Iterator[Problem]:
    if (attempt / "thermal.csv").is_file() and run["valid"]:
        # In a run that does not count, its faults stand among the reasons already.
        _, problems = raw.read_thermal(attempt / "thermal.csv")
        yield from (Problem(f"{place}/{problem.file}", problem.line, problem.what) for problem in problems)
    if (attempt / "thermal.meta.json").is_file() and run["valid"]:
        yield from _meta(folder, attempt, place, run)
    if run["workload"]["name"] == "llama-load" and run["valid"]:
        yield from _lines(folder, f"{place}/workload/llama.jsonl", "llama.line")
    burn = f"{place}/workload/burn.jsonl"
    if run["workload"]["name"] == "burn" and (folder / burn).is_file() and run["valid"]:
        yield from _lines(folder, burn, "burn.line")
        try:
            window = raw.burn_window(folder / burn)
        except InputError as error:
            yield _problem(folder, burn, error)
            return
        said = run["load_window_monotonic_s"]
        if (
            window is None
            or not isinstance(said, list)
            or max(abs(window[0] - said[0]), abs(window[1] - said[1])) > WINDOW_NOISE_S
        ):
            yield Problem(f"{place}/{record.NAME}", None, f"load window is {said}, burn.jsonl says {window}")


def _answers(attempt: Path, name: str, run: Mapping[str, Any], campaign: Mapping[str, Any] | None) -> Iterator[Problem]:
    """The boards that the run says it is of are those that its own files come from."""
    if not run["valid"] or campaign is None:
        return
    board_of = {entry["identity"].get("hostname"): entry["name"] for entry in campaign["boards"]}
    came: dict[str, int] = {}
    for path in sorted(attempt.rglob("thermal.meta.json")):
        try:
            host = str(store.read_object(path).get("hostname"))
        except InputError:
            continue  # said elsewhere
        node = str(board_of.get(host, host))
        came[node] = came.get(node, 0) + 1
    for reason in answers.reasons(run["boards"], came):
        yield Problem(name, None, f"{reason.code}: {reason.detail}")


def _meta(folder: Path, attempt: Path, place: str, run: Mapping[str, Any]) -> Iterator[Problem]:
    name = f"{place}/thermal.meta.json"
    meta, problems = _document(folder, name, "thermal.meta")
    yield from problems
    if meta is None:
        return
    if meta["boot_id"] is not None and meta["boot_id"] != run["boot_ids"]["before"]:
        yield Problem(name, None, "is from another boot than the run")
    if meta["virtual"] != run["virtual"]:
        yield Problem(name, None, f"says virtual: {meta['virtual']}, run.json says {run['virtual']}")
    log, _ = raw.read_thermal(attempt / "thermal.csv") if (attempt / "thermal.csv").is_file() else (None, [])
    if log is not None:
        unnamed = set(log.columns) - set(raw.CLOCKS) - set(meta["columns"])
        if unnamed:
            yield Problem(name, None, f"gives no source for {', '.join(sorted(unnamed))}")


def _judged(place: str, cell: str, stored: Mapping[str, Any] | None) -> Iterator[Problem]:
    """A cell whose runs are good by themselves, and do not count for what the campaign shows against them."""
    for entry in stored["cells"] if stored else ():
        if entry["cell"] == cell and entry["state"] == "invalid":
            said = sorted({reason["code"] for one in entry["attempts"] for reason in one["invalid_reasons"]})
            yield Problem(place, None, f"has no attempt that counts in the campaign: {', '.join(said)}")


def _cells(
    folder: Path, plan: Mapping[str, Any], stored: Mapping[str, Any] | None, runs: list[Mapping[str, Any]]
) -> Iterator[Problem]:
    names = [run["run"] for run in runs]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem("cells", None, f"run {name} is there more than once")
    why = {entry["cell"]: entry["why"] for entry in stored["missing"]} if stored else {}
    left_out = {cell["cell"] for cell in stored["cells"] if cell["state"] == "not-selected"} if stored else set()
    for cell in plan["cells"]:
        mine = [run for run in runs if run["cell"] == cell["name"]]
        place = f"cells/{cell['name']}"
        if any(run["valid"] for run in mine) or (not mine and cell["name"] in left_out):
            yield from _judged(place, cell["name"], stored)
            continue
        if mine:
            codes = sorted({reason["code"] for run in mine for reason in run["invalid_reasons"]})
            yield Problem(place, None, f"has no valid attempt: {', '.join(codes)}")
        else:
            yield Problem(
                place, None, f"the plan has this cell, but there is no run: {why.get(cell['name'], 'unknown')}"
            )
    if stored is None:
        return
    again = verdict.make(folder, plan, verdict.ending_of(stored))
    for key in ("campaign", "counts", "cells", "decisions", "warnings"):
        if stored[key] != again[key]:
            yield Problem("verdict.json", None, f"{key} is not what the files say")
    for entry in again["warnings"]:
        yield Problem("verdict.json", None, f"board {entry['board']}: {entry['what']}")
    for entry in stored["not_restored"]:
        yield Problem("verdict.json", None, f"board {entry['board']} was not put back: {entry['why']}")
