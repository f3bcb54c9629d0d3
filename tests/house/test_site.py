"""The documentation site builds without a broken link, and loads nothing from elsewhere."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_the_figures_of_the_readme_are_those_of_the_last_sessions() -> None:
    """The table's rates and shares, from the last line of each workload's results."""
    rows: list[str] = []
    for workload in ("w1", "w2"):
        lines = (ROOT / "benchmarks" / "results" / f"{workload}.jsonl").read_text().splitlines()
        rates = json.loads(lines[-1])["medians"]
        for name, kind in (("records", "records"), ("Arrow batches", "batches")):
            rate = rates[f"tidegate-local {kind}"]
            told = f"{rate / 1e6:.2f}" if rate < 1e7 else f"{rate / 1e6:.1f}"
            flink, pyflink = rate / rates["flink-jvm"], rate / rates["pyflink bundle 20,000"]
            share = f"{flink:.2f}" if flink < 1 else f"{flink:.1f}"
            times = f"{pyflink:,.0f}" if pyflink < 1_000 else f"{round(pyflink, -2):,.0f}"
            rows.append(f"| {workload.upper()}, {name}, local | {told} M | {share} | {times} |")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [line for line in readme.splitlines() if line.startswith("| W")] == rows
    last = (ROOT / "benchmarks" / "results" / "recovery.jsonl").read_text().splitlines()[-1]
    recovered_s = {name: ms / 1_000 for name, ms in json.loads(last)["medians_ms"].items()}
    local, spark = recovered_s["local 10,000 keys"], recovered_s["spark 10,000 keys"]
    assert f"it took {local:.1f} s locally and {spark:.1f} s on Spark" in readme
