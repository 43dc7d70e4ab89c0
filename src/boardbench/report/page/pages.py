"""Which page and which document a campaign's folder gives: one that was run here, or one that was imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boardbench.imports import stored as imports
from boardbench.report.campaign_report import load_report
from boardbench.report.cluster import arm_as_json, cluster_of
from boardbench.report.page.model import Page


def page_of(folder: Path) -> Page:
    """The page of a campaign. Raises InputError when it is none, or not finished."""
    if imports.is_imported(folder):
        from boardbench.report.page.imported import imported_page

        return imported_page(folder)
    from boardbench.report.page.native import native_page

    return native_page(folder)


def document_of(folder: Path) -> dict[str, Any]:
    """The same as one JSON document of numbers. Raises InputError as `page_of`."""
    if not imports.is_imported(folder):
        document = load_report(folder).as_json()
        arms = cluster_of(folder).arms
        return {**document, "cluster": [arm_as_json(arm) for arm in arms]} if arms else document
    from boardbench.report.import_figures import import_figures

    stored = imports.load(folder)
    return {
        "campaign": folder.name,
        "matrix": stored.campaign["matrix"],
        "question": stored.campaign["question"],
        "imported": dict(stored.provenance),
        "figures": import_figures(stored),
        "runs": [dict(run) for run in stored.runs],
        "faults": [dict(fault) for fault in stored.faults],
    }
