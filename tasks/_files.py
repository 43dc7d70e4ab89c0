"""Files that a user names by a short word: matrices, campaigns, playbooks."""

from __future__ import annotations

import os
from pathlib import Path

from boardbench.errors import InputError
from boardbench.locations import project_dir
from boardbench.yamlfile import nearest


def project_file(given: str) -> Path:
    """A path as seen from where the user stands, else from the checkout."""
    here = Path(given)
    return here if here.is_absolute() or here.exists() else project_dir() / given


def matrix_file(name: str) -> Path:
    """`thermal` -> playbooks/matrices/thermal.yml; a path to a file is taken as it is."""
    if name.endswith((".yml", ".yaml")) or "/" in name:
        return Path(name)
    folder = project_dir() / "playbooks" / "matrices"
    path = folder / f"{name}.yml"
    if not path.is_file():
        known = sorted(found.stem for found in folder.glob("*.yml"))
        near = nearest(name, known)
        raise InputError(
            f"no matrix '{name}'",
            where="playbooks/matrices",
            advice=f"did you mean '{near}'?" if near else f"there are: {', '.join(known)}",
        )
    return path


def results_dir() -> Path:
    """Where campaigns land: `results/` of the checkout, or the folder that BOARDBENCH_RESULTS names."""
    named = os.environ.get("BOARDBENCH_RESULTS", "")
    return Path(named) if named else project_dir() / "results"


def campaign_dir(given: str) -> Path:
    """The campaign that is meant: a path, start or end of an id, a matrix for its newest, or the newest of all."""
    if given and Path(given).is_dir():
        return Path(given)
    found = sorted(results_dir().glob("*/*/campaign.json"), key=lambda path: path.parent.name)
    campaigns = [path.parent for path in found]
    if given and (of_matrix := [path for path in campaigns if path.parent.name == given]):
        return of_matrix[-1]
    if given:
        campaigns = [path for path in campaigns if path.name.startswith(given) or path.name.endswith(given)]
        if len(campaigns) > 1:
            raise InputError(f"'{given}' fits {len(campaigns)} campaigns", advice="give more of its name")
    if not campaigns:
        what = f"no campaign '{given}'" if given else "no campaign yet"
        raise InputError(what, where="results", advice="run ./inv bench --matrix thermal first, or name a folder")
    return campaigns[-1]
