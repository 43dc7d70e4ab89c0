"""ledger: everything that was found so far."""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from boardbench.errors import ExitCode, InputError
from tasks._verb import emit, verb


@verb(
    help={
        "html": "write one self-contained HTML file instead",
        "markdown": "write Markdown instead",
        "out": "the file to write ('-': stdout; default: ledger.html or ledger.md in the current folder)",
    }
)
def ledger(c: Context, html: bool = False, markdown: bool = False, out: str = "", json: bool = False) -> int:
    """Sum up all campaigns under results/: questions, verdicts, figures, domains, and what changed since last time."""
    from boardbench.report.ledger_page import ledger_page, main_figures
    from boardbench.results import ledger as book
    from boardbench.results import ledger_versions as versions
    from tasks._files import results_dir

    if html + markdown + json > 1:
        raise InputError("two formats at once", advice="ask for one of --html, --markdown, --json")
    if out and not (html or markdown):
        raise InputError("--out needs a format", advice="add --html or --markdown")
    results = results_dir()
    if not results.is_dir():
        raise InputError(
            "there are no results yet", where=str(results), advice="run ./inv bench --matrix thermal first"
        )
    path = results / versions.NAME
    before = versions.last(path)
    found = versions.next_version(before, book.entries(results, main_figures))
    if before is None or found != before:
        versions.write(path, found)
    if json:
        emit(found.as_json())
    elif html or markdown:
        from boardbench.report.page import html as pages
        from boardbench.report.page import markdown as words

        page = ledger_page(found, results)
        text = pages.render(page) if html else words.render(page)
        _write(text, out or ("ledger.html" if html else "ledger.md"))
    else:
        from boardbench.report.ledger_table import print_ledger

        print_ledger(found)
    bad = any(entry.state == book.DAMAGED for entry in found.entries)
    return ExitCode.OUTCOME if bad else ExitCode.OK


def _write(text: str, out: str) -> None:
    if out == "-":
        print(text, end="", flush=True)
        return
    try:
        Path(out).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=out) from error
    print(out, flush=True)


VERBS = (ledger,)
