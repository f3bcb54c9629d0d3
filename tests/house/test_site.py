"""The documentation site builds without a broken link, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.page import Page
from scripts import reference
from tests.house.source import ROOT

LOADED = (
    re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(https?:)?//", re.IGNORECASE),
    re.compile(r"<link\b[^>]*rel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*(https?:)?//"),
    re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    reference.API.write_text(reference.api_page(), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.slow
def test_no_page_and_no_style_loads_anything_from_another_host(site: Path) -> None:
    pages = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(pages) > 80
    found = {
        str(path.relative_to(site)): match[0]
        for path in pages
        for pattern in LOADED
        if (match := pattern.search(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.slow
def test_diagrams_are_drawn_by_the_library_that_lies_beside_them(site: Path) -> None:
    text = (site / "concepts" / "checkpoints.html").read_text(encoding="utf-8")
    assert 'class="diagram"' in text
    assert "vendor/mermaid/mermaid.min.js" in text and "assets/diagrams.js" in text
    assert (site / "vendor" / "mermaid" / "mermaid.min.js").stat().st_size > 1_000_000


@pytest.mark.slow
def test_fifteen_pages_and_more_have_a_diagram_made_from_text(site: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    assert sum(page.count('class="diagram"') for page in pages) >= 15


def test_lists_within_lists_are_indented_as_the_site_needs_it() -> None:
    """By four spaces: with two it shows them as one list."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "vendor" not in page.parts]
    flat = [page.name for page in pages if re.search(r"^ {1,3}[-*] ", page.read_text(), re.M)]
    assert flat == []


def test_the_page_of_benchmarks_is_that_of_the_last_sessions(tmp_path: Path) -> None:
    page = Page(ROOT / "benchmarks" / "results", tmp_path).text()
    written = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert written == page, "results have changed: make bench-page"
    plots = {file.name for file in (ROOT / "docs" / "assets").glob("benchmark-*.svg")}
    assert plots == {file.name for file in tmp_path.iterdir()}
