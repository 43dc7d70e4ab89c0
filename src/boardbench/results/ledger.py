"""All campaigns of a results folder in short, from their files alone: what was asked, decided, measured, for what.

An entry is derived from files that the campaign's manifest lists, so it is kept under the manifest's hash in the cache
folder; that cache can be deleted at any time. What is damaged or not finished is an entry too: nothing is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boardbench.errors import InputError
from boardbench.locations import ledger_dir
from boardbench.results import manifest, store

VERSION = 1
"""Of an entry's form: another number makes all cached entries anew."""
FINISHED, UNFINISHED, DAMAGED = "finished", "unfinished", "damaged"
_READ = ("campaign.json", "plan.json", "verdict.json")
_NAMED = 3
"""So many damaged files are named; the rest is counted."""


@dataclass(frozen=True)
class Ruling:
    """A rule and what came of it: verdict, the numbers in words."""

    rule: str
    verdict: str
    text: str
    numbers: str


@dataclass(frozen=True)
class Entry:
    """One campaign. `why`: what is wrong with one that is not finished. `figures`: its main ones, in words."""

    campaign: str
    matrix: str
    state: str
    why: tuple[str, ...]
    question: str
    started_unix_s: float | None
    virtual: bool | None
    imported: bool
    cells: int
    valid: int
    invalid: int
    missing: int
    rulings: tuple[Ruling, ...]
    prediction: str | None
    predicted: str
    domain: str
    figures: tuple[str, ...]
    manifest_sha256: str

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Entry:
        """The entry that `as_json` gave. Raises TypeError or KeyError for anything else."""
        return Entry(**{
            **data, "why": tuple(data["why"]), "figures": tuple(data["figures"]),
            "rulings": tuple(Ruling(**one) for one in data["rulings"]),
        })  # fmt: skip

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The words of its rules, in their order; its state when it has none to give."""
        if self.state != FINISHED:
            return (self.state,)
        return tuple(one.verdict for one in self.rulings) or ("no rule",)


Figures = Callable[[Path], Sequence[str]]
"""Main figures of a campaign that has no rule, in words."""


def entries(results: Path, figures: Figures) -> list[Entry]:
    """Every campaign under `results`, oldest first. `figures` is asked once for a campaign, then kept."""
    cache = _Cache(ledger_dir())
    found = [_entry(folder, figures, cache) for folder in campaigns(results)]
    return sorted(found, key=lambda entry: (entry.campaign, entry.matrix))


def campaigns(results: Path) -> list[Path]:
    """Folders `<results>/<matrix>/<campaign>/`, sorted: whatever has the place of a campaign, whole or not."""
    found = []
    for matrix in sorted(results.iterdir()) if results.is_dir() else ():
        if not matrix.is_dir() or matrix.name.startswith(".") or matrix.name == "plans":
            continue
        found += [path for path in sorted(matrix.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    return found


def _entry(folder: Path, figures: Figures, cache: _Cache) -> Entry:
    if not (folder / manifest.NAME).is_file():
        if (folder / "campaign.json").is_file() and not (folder / "verdict.json").is_file():
            return _bare(folder, UNFINISHED, ("it still runs, or its controller was killed",))
        return _bare(folder, DAMAGED, (f"{manifest.NAME} is missing",))
    try:
        listed, sha = manifest.read(folder)
    except InputError as error:
        return _bare(folder, DAMAGED, (f"{manifest.NAME} {error.what}",))
    wrong = _wrong(folder, listed)
    if wrong:
        more = (f"and {len(wrong) - _NAMED} more",) if len(wrong) > _NAMED else ()
        return _bare(folder, DAMAGED, (*wrong[:_NAMED], *more))
    known = cache.get(folder, sha)
    if known is None:
        try:
            known = _made(folder, sha, figures)
        except (InputError, KeyError, TypeError, ValueError) as error:
            return _bare(folder, DAMAGED, (f"cannot be read as a campaign: {error}",))
        cache.put(folder, known)
    return known


def _wrong(folder: Path, listed: Mapping[str, str]) -> list[str]:
    """Files that lack or were added, and the ones that are read here if they changed.

    Hashes of all raw files are the work of `validate`: they are gigabytes.
    """
    present = set(_files(str(folder)))
    present.discard(manifest.NAME)
    wrong = [f"{name} is missing" for name in sorted(set(listed) - present)]
    wrong += [f"{name} was added" for name in sorted(present - set(listed))]
    for name in _READ:
        if name in listed and name in present and store.sha256_file(folder / name) != listed[name]:
            wrong.append(f"{name} was changed")
    if "verdict.json" not in listed or "campaign.json" not in listed:
        wrong.append("it has no verdict")
    return wrong


def _files(folder: str, prefix: str = "") -> list[str]:
    found: list[str] = []
    with os.scandir(folder) as listing:
        for item in listing:
            name = f"{prefix}{item.name}"
            if item.is_dir(follow_symlinks=False):
                found += _files(item.path, f"{name}/")
            else:
                found.append(name)
    return found


def _bare(folder: Path, state: str, why: tuple[str, ...]) -> Entry:
    """What can be said of a campaign whose files are not to be trusted, or not all there."""
    try:
        head: Mapping[str, Any] = store.read_object(folder / "campaign.json")
    except InputError:
        head = {}
    virtual, made = head.get("virtual"), head.get("created_wall_unix_s")
    return Entry(
        folder.name, folder.parent.name, state, why, str(head.get("question", "")),
        float(made) if isinstance(made, int | float) else None, virtual if isinstance(virtual, bool) else None,
        "imported" in head, 0, 0, 0, 0, (), None, "", "", (), "",
    )  # fmt: skip


def _made(folder: Path, sha: str, figures: Figures) -> Entry:
    campaign: dict[str, Any] = store.read_object(folder / "campaign.json")
    verdict: dict[str, Any] = store.read_object(folder / "verdict.json")
    counts, decisions = verdict["counts"], verdict["decisions"]
    told = decisions["prediction"]
    rulings = tuple(
        Ruling(str(rule["rule"]), str(rule["verdict"]), str(rule["text"]), numbers(rule)) for rule in decisions["rules"]
    )
    return Entry(
        campaign=folder.name,
        matrix=str(campaign["matrix"]),
        state=FINISHED,
        why=(),
        question=str(campaign["question"]),
        started_unix_s=float(campaign["created_wall_unix_s"]),
        virtual=bool(campaign["virtual"]),
        imported="imported" in campaign,
        cells=int(counts["cells"]),
        valid=int(counts["valid"]),
        invalid=int(counts["invalid"]),
        missing=int(counts["missing"]),
        rulings=rulings,
        prediction=None if told is None else str(told["verdict"]),
        predicted="" if told is None else str(told["says"]),
        domain=str(decisions["domain"]),
        figures=() if rulings else tuple(figures(folder)),
        manifest_sha256=sha,
    )


def numbers(rule: Mapping[str, Any]) -> str:
    """The figures of a rule over all boards: `ratio 0.405 = 3,243 (n 1) / 8,002 (n 1) operations/s`, or why none."""
    if rule["effect"] is None:
        return str(rule["why"]) or "not measured"
    unit = str(rule["unit"]).rpartition(" in ")[2]
    arm = f"{_figure(rule['arm_value'])} (n {rule['arm_n']})"
    if rule["baseline"] is None:
        return f"{arm} {unit}"
    sign = "/" if rule["compare"] == "ratio" else "-"
    return f"{rule['compare']} {_figure(rule['effect'])} = {arm} {sign} {_figure(rule['baseline_value'])} " \
           f"(n {rule['baseline_n']}) {unit}"  # fmt: skip


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class _Cache:
    """Entries by the hash of their manifest. What cannot be read is made again; what cannot be written is not kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, folder: Path, sha: str) -> Path:
        return self._folder / f"v{VERSION}-{sha}-{folder.name}.json"

    def get(self, folder: Path, sha: str) -> Entry | None:
        try:
            found = Entry.of(store.read_object(self._path(folder, sha)))
        except (InputError, TypeError, KeyError):
            return None
        return found if found.manifest_sha256 == sha and found.campaign == folder.name else None

    def put(self, folder: Path, entry: Entry) -> None:
        path = self._path(folder, entry.manifest_sha256)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}.partial")
            partial.write_bytes(store.to_bytes(entry.as_json()))
            partial.replace(path)
        except OSError:
            return
