"""report: what a campaign found."""

from __future__ import annotations

from invoke import Context

from boardbench.errors import ExitCode
from tasks._verb import emit, verb


@verb(help={"campaign": "campaign folder or part of its name (default: the newest)"})
def report(c: Context, campaign: str = "", json: bool = False) -> int:
    """Print the tables of a campaign: throughput, heat, clocks, throttling, validity."""
    from boardbench.report.campaign_report import load_report
    from tasks._files import campaign_dir

    loaded = load_report(campaign_dir(campaign))
    if json:
        emit(loaded.as_json())
    else:
        from boardbench.report.tables import print_report

        print_report(loaded)
    return ExitCode.OK


VERBS = (report,)
