"""report: what a campaign found."""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, note, verb


@verb(
    help={
        "campaign": "campaign folder, start or end of its id, or a matrix for its newest (default: the newest)",
        "html": "write one self-contained HTML file instead",
        "markdown": "write Markdown instead",
        "csv": "write one row per run instead",
        "svg": "write every chart as SVG, PNG and Vega-Lite into this folder",
        "out": "the file to write ('-': stdout; default: the campaign's name in the current folder)",
    }
)
def report(
    c: Context,
    campaign: str = "",
    html: bool = False,
    markdown: bool = False,
    csv: bool = False,
    svg: str = "",
    out: str = "",
    json: bool = False,
) -> int:
    """Print the tables of a campaign, or write them as a page, Markdown, CSV or pictures."""
    from tasks._files import campaign_dir

    chosen = [name for name, wanted in (("html", html), ("markdown", markdown), ("csv", csv), ("json", json)) if wanted]
    if len(chosen) > 1:
        raise InputError(f"--{chosen[0]} and --{chosen[1]} are two formats", advice="ask for one at a time")
    if out and not chosen:
        raise InputError("--out needs a format", advice="add --html, --markdown, --csv or --json")
    folder = campaign_dir(campaign)
    form = chosen[0] if chosen else ""
    if form in ("html", "markdown") or svg:
        _page(folder, form if form in ("html", "markdown") else "", out, svg)
    if form == "csv":
        from boardbench.report.rows import campaign_csv

        _write(campaign_csv(folder), folder, "csv", out)
    elif form == "json":
        _json(folder, out)
    elif not form and not svg:
        _terminal(folder)
    return ExitCode.OK


def _page(folder: Path, form: str, out: str, svg: str) -> None:
    from boardbench.report.page.pages import page_of

    page = page_of(folder)
    if form == "html":
        from boardbench.report.page import html as face

        _write(face.render(page), folder, "html", out)
    elif form == "markdown":
        from boardbench.report.page import markdown as words

        _write(words.render(page), folder, "md", out)
    if svg:
        from boardbench.report.page.vega import write_pictures

        written = write_pictures(list(page.charts()), Path(svg))
        note(f"{len(written)} files in {svg}" if written else "this campaign has no chart")


def _json(folder: Path, out: str) -> None:
    from boardbench.report.page.pages import document_of

    document = document_of(folder)
    if out and out != "-":
        import json as format_of

        _write(format_of.dumps(document, sort_keys=True, allow_nan=False) + "\n", folder, "json", out)
    else:
        emit(document)


def _terminal(folder: Path) -> None:
    from boardbench.imports.stored import is_imported, load

    if is_imported(folder):
        from boardbench.report.import_table import print_import

        print_import(load(folder))
        return
    from boardbench.report.campaign_report import load_report
    from boardbench.report.cluster import cluster_of
    from boardbench.report.cluster_tables import for_terminal, tables
    from boardbench.report.tables import print_report, print_table

    print_report(load_report(folder))
    for table in tables(cluster_of(folder).arms):
        print_table(for_terminal(table))


def _write(text: str, folder: Path, ending: str, out: str) -> None:
    """To stdout, or to a file whose path is then the one line on stdout."""
    if out == "-":
        print(text, end="", flush=True)
        return
    path = Path(out) if out else Path(f"{folder.parent.name}-{folder.name}.{ending}")
    if path.is_dir():
        path = path / f"{folder.parent.name}-{folder.name}.{ending}"
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from error
    print(path, flush=True)


VERBS = (report,)
