"""Files of Flink's dashboard, read out of a jar: which names are served, and how."""

from __future__ import annotations

import urllib.error
import urllib.request
import zipfile
from typing import TYPE_CHECKING

import pytest
import structlog

from tests.rest.served import Served, made
from tidegate import ConfigError, Configuration
from tidegate.config.settings import job_settings
from tidegate.model.ids import Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

FILES = {
    "web/index.html": b"<html>",
    "web/main.a877f62051d76ab2.js": b"run()",
    "web/styles.25112ea718f4efbe.css": b"p {}",
    "web/assets/favicon/one.png": b"png",
    "web/assets/codicon.ttf": b"font",
    "META-INF/secret.txt": b"not for the page",
}


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "dashboard.jar"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    (tmp_path / "outside.txt").write_text("outside")
    return path


@pytest.fixture
def url(jar: Path) -> Iterator[str]:
    server = made(jar=str(jar))
    with structlog.testing.capture_logs():
        server.open(Served(), Epoch(1))  # type: ignore[arg-type]
    yield server.url
    server.shut()


def fetch(url: str) -> tuple[int, bytes, Message]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


@pytest.mark.parametrize(
    ("path", "name", "kind"),
    [
        ("/index.html", "index.html", "text/html; charset=utf-8"),
        ("/main.a877f62051d76ab2.js", "main.a877f62051d76ab2.js", "text/javascript; charset=utf-8"),
        ("/styles.25112ea718f4efbe.css", "styles.25112ea718f4efbe.css", "text/css; charset=utf-8"),
        ("/assets/favicon/one.png", "assets/favicon/one.png", "image/png"),
        ("/assets/codicon.ttf", "assets/codicon.ttf", "font/ttf"),
    ],
)
def test_a_file_of_the_jar_is_served_as_what_it_is(
    url: str, path: str, name: str, kind: str
) -> None:
    status, data, headers = fetch(url + path)
    assert (status, data, headers["Content-Type"]) == (200, FILES[f"web/{name}"], kind)
    lasting = "public, max-age=31536000, immutable"
    hashed = name.startswith(("main.", "styles."))
    assert headers["Cache-Control"] == (lasting if hashed else "no-cache")
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/none.js",
        "/META-INF/secret.txt",
        "/../META-INF/secret.txt",
        "/%2e%2e/META-INF/secret.txt",
        "/assets/../../META-INF/secret.txt",
        "/assets%2f..%2f..%2foutside.txt",
        "/..%5coutside.txt",
        "/assets/",
        "/assets",
    ],
)
def test_no_other_name_is_served(url: str, path: str) -> None:
    status, data, _ = fetch(url + path)
    assert status == 404 and b"Unable to load requested file" in data


def test_what_the_job_answers_and_its_own_page_come_first(url: str) -> None:
    assert fetch(f"{url}/jobs")[1].startswith(b'{"jobs":')
    assert b"<title>Tidegate</title>" in fetch(f"{url}/")[1]


@pytest.mark.parametrize("fault", ["missing", "no jar", "no dashboard"])
def test_a_jar_without_a_dashboard_is_refused(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "flink.jar"
    if fault == "no jar":
        path.write_text("text")
    elif fault == "no dashboard":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("index.html", "elsewhere")
    with pytest.raises(ConfigError, match=r"flink\.jar") as refused:
        made(jar=str(path))
    assert refused.value.where == "rest.web.jar"


def test_the_option_names_the_jar() -> None:
    rest = job_settings(
        Configuration.from_dict({"rest.port": "0", "rest.web.jar": "/flink.jar"})
    ).rest
    assert rest is not None and rest.jar == "/flink.jar"
