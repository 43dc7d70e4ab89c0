"""The page in a real browser: it draws, asks nobody for anything, complains of nothing, and cuts no text off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boardbench.report.page import html
from boardbench.report.page.native import native_page

from . import browser as browsers
from . import made_cluster
from .made_campaign import Wanted, make

pytestmark = pytest.mark.skipif(
    browsers.path() is None, reason="no Chromium on this machine (apt-get install chromium)"
)

WIDTHS = (360, 800, 1400)
HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>"

# Text whose box reaches beyond the page or its drawing, or whose own box hides a part of it and cannot be scrolled.
CLIPPED = """
(() => {
  const out = [], wide = document.documentElement.clientWidth;
  const scrolls = node => Boolean(node.closest('.wide'));
  document.querySelectorAll('body *:not(script):not(style)').forEach(node => {
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height) return;
    const svg = node.ownerSVGElement;
    if (svg) {
      if (node.tagName !== 'text') return;
      const frame = svg.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1) out.push('drawn text: ' + node.textContent);
      return;
    }
    if (scrolls(node)) return;
    const name = node.tagName + ' ' + node.textContent.slice(0, 60);
    if (box.right > wide + 1 || box.left < -1) out.push('beyond the page: ' + name);
    const style = getComputedStyle(node);
    if (style.overflowX !== 'visible' && node.scrollWidth > node.clientWidth + 1) out.push('hidden: ' + name);
  });
  return out;
})()
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    campaign = make(folder, Wanted(virtual=True, question=f"What does it cost? {HOSTILE}", note=HOSTILE))
    path = folder / "report.html"
    path.write_text(html.render(native_page(campaign)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    with browsers.browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (800, "light"), (1400, "dark")])
def test_a_cluster_is_drawn_whole_at(chromium: browsers.Browser, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "cluster.html"
    path.write_text(html.render(native_page(made_cluster.make(tmp_path))), encoding="utf-8")
    chromium.size(width, scheme=scheme)
    chromium.open(path)
    assert chromium.value("document.querySelectorAll('#cluster .chart svg').length") == 2
    assert chromium.complaints() == []
    assert chromium.requests() == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(CLIPPED) == []
    drawn = chromium.value("[...document.querySelectorAll('#cluster svg text')].map(one => one.textContent)")
    assert any("3.00 x" in text and "100.0 %" in text for text in drawn)
    assert {"p99", "pooled", "mean of runs"} <= set(drawn)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_draws_quietly_at(chromium: browsers.Browser, file: Path, width: int, scheme: str) -> None:
    chromium.size(width, scheme=scheme)
    chromium.open(file)
    assert chromium.value("document.querySelectorAll('.chart svg').length") == 5
    assert chromium.complaints() == []
    assert chromium.requests() == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.value(CLIPPED) == []
    assert chromium.value("window.broken") is None
    ground = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 22, 29)"}[scheme]
    drawn = chromium.value("getComputedStyle(document.querySelector('.chart svg text')).fill")
    assert drawn != ground


def test_charts_fit_again_when_the_window_changes(chromium: browsers.Browser, file: Path) -> None:
    chromium.size(1400)
    chromium.open(file)
    chromium.size(360)
    chromium.wait_for(
        "[...document.querySelectorAll('.chart svg')].every(one => one.getBoundingClientRect().width <= 332)"
    )
    assert chromium.complaints() == []


def test_the_page_holds_its_own_policy(chromium: browsers.Browser, file: Path) -> None:
    chromium.size(800)
    chromium.open(file)
    tried = "fetch('http://127.0.0.1:9/').then(() => 'went out', () => 'refused')"
    assert chromium.value(tried) == "refused"
    assert any("Content Security Policy" in text for text in chromium.complaints())


def test_what_is_measured_would_find_a_clipped_text(chromium: browsers.Browser, file: Path) -> None:
    chromium.size(360)
    chromium.open(file)
    chromium.value(
        "(() => { const p = document.createElement('p'); p.style.cssText = 'width:600px'; p.textContent = 'x';"
        " document.querySelector('main').append(p); })()"
    )
    assert chromium.value(CLIPPED) != []


def test_on_paper_it_is_light_and_whole(chromium: browsers.Browser, file: Path) -> None:
    chromium.size(800, scheme="dark")
    chromium.open(file)
    chromium.call("Emulation.setEmulatedMedia", media="print",
                  features=[{"name": "prefers-color-scheme", "value": "dark"}])  # fmt: skip
    try:
        assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert chromium.value("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert len(chromium.call("Page.printToPDF")["data"]) > 10_000
    finally:
        chromium.call("Emulation.setEmulatedMedia", media="", features=[])
