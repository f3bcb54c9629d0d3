"""Whom the REST interface answers."""

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from tests.e2e.certificates import Authority
from tests.rest.served import Served, made
from tests.rest.world import EMPTY, JOB
from tidegate import ConfigError
from tidegate.config.rest import rest_settings
from tidegate.model.ids import Epoch
from tidegate.model.settings import RestSettings, TlsStores
from tidegate.rest.guard import Guard, check_target
from tidegate.rest.names import announced
from tidegate.rest.refusals import Forbidden, NotFound
from tidegate.testing import ManualClock
from tidegate.transport.accepting import listening_at

TOKEN = "0123456789abcdef-of-a-test"
Ask = Callable[..., tuple[int, Any, Mapping[str, str]]]


@contextmanager
def serving(
    context: ssl.SSLContext | None = None, job: Served | None = None, **settings: Any
) -> Iterator[Ask]:
    """Asks a server with these settings; headers are sent as they are given."""
    server = made(**settings)
    with capture_logs():
        server.open(job or Served(), Epoch(1))
    at = urlsplit(server.url)
    assert at.hostname is not None and at.scheme == ("https" if context else "http")

    def ask(
        method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        headers = {"Host": f"localhost:{at.port}", **headers}
        link: http.client.HTTPConnection
        if context is None:
            link = http.client.HTTPConnection("localhost", at.port, timeout=60)
        else:
            link = http.client.HTTPSConnection("localhost", at.port, timeout=60, context=context)
        link.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            link.putheader(name.replace("_", "-"), value)
        if body is not None:
            link.putheader("Content-Length", str(len(body)))
        link.endheaders(body)
        answer = link.getresponse()
        data = answer.read()
        link.close()
        return answer.status, json.loads(data) if data else None, answer.headers

    try:
        yield ask
    finally:
        server.shut()


JSON = {"Content_Type": "application/json"}


def test_a_page_that_gives_its_own_name_to_this_machine_is_refused() -> None:
    with serving() as ask:
        theirs = {"Host": "evil.example:8081", "Origin": "http://evil.example:8081"}
        assert ask("GET", "/jobs", **theirs)[0] == 403
        status, answer, _ = ask("POST", f"/jobs/{JOB}/savepoints", b"{}", **theirs, **JSON)
        assert status == 403 and "tidegate.rest.allowed-hosts" in answer["errors"][0]
        assert ask("PATCH", f"/jobs/{JOB}", **theirs)[0] == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "[::1]:80", "jobs.me"]
)
def test_the_job_is_asked_under_names_of_its_own(host: str) -> None:
    with serving(allowed_hosts=("Jobs.me",)) as ask:
        assert ask("GET", "/jobs", Host=host)[0] == 200


def test_another_address_of_this_machine_is_good_only_where_it_was_dialled() -> None:
    guard = Guard(RestSettings((0, 0), bind_address="0.0.0.0"), None, ManualClock())
    asked = {"Host": "10.0.0.7:8081"}
    guard.check("GET", "/jobs", asked, here="10.0.0.7", has_body=False)
    for given, here in ((asked, "10.0.0.8"), ({}, "10.0.0.7"), ({"Host": "0.0.0.0"}, "::")):
        with pytest.raises(Forbidden):
            guard.check("GET", "/jobs", given, here=here, has_body=False)


def test_an_interface_at_every_address_has_the_name_of_its_machine() -> None:
    machine = socket.gethostname()
    for everywhere in ("0.0.0.0", "::", ""):
        unnamed = RestSettings((0, 0), bind_address=everywhere)
        named = replace(unnamed, address="jobs.example")
        assert (announced(unnamed), announced(named)) == (machine, "jobs.example")
        for settings in (unnamed, named):
            guard = Guard(settings, None, ManualClock())
            asked = {"Host": f"{machine.upper()}:8081"}
            guard.check("GET", "/jobs", asked, here="10.0.0.7", has_body=False)
    assert announced(RestSettings((0, 0))) == "localhost"


def test_addresses_of_ipv6_are_served_and_told_as_urls_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = made(address="2001:db8::7")
    assert server.url.startswith("http://[2001:db8::7]:")
    server.shut()
    bound: list[tuple[object, object, object]] = []
    monkeypatch.setattr(
        socket,
        "create_server",
        lambda at, family, dualstack_ipv6, **_: bound.append((at, family, dualstack_ipv6)),
    )
    for address in ("127.0.0.1", "::1"):
        listening_at(address, 0)
    assert bound == [
        (("127.0.0.1", 0), socket.AF_INET, False),
        (("::1", 0), socket.AF_INET6, False),
    ]
    guard = Guard(RestSettings((0, 0), bind_address="::"), None, ManualClock())
    for host, here in (
        ("[2001:db8::7]:80", "2001:db8::7"),
        ("[fe80::7]", "fe80::7%eth0"),
        ("10.0.0.7:80", "::ffff:10.0.0.7"),
    ):
        guard.check("GET", "/jobs", {"Host": host}, here=here, has_body=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 415),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({**JSON, "Sec_Fetch_Site": "cross-site"}, 403),
        ({**JSON, "Sec_Fetch_Site": "same-site"}, 403),
        ({**JSON, "Origin": "http://other.example"}, 403),
        ({"Content_Type": "Application/JSON; charset=utf-8", "Sec_Fetch_Site": "same-origin"}, 400),
    ],
)
def test_a_change_is_asked_for_as_no_page_of_another_site_can(
    headers: dict[str, str], status: int
) -> None:
    with serving() as ask:
        body = b'{"formatType": "PLAIN"}'  # what is answered, is told that there is no such format
        assert ask("POST", f"/jobs/{JOB}/savepoints", body, **headers)[0] == status


def test_a_cancel_needs_no_body_and_no_type_of_it() -> None:
    with serving() as ask:
        assert ask("PATCH", f"/jobs/{JOB}")[0] == 202
        assert ask("PATCH", f"/jobs/{JOB}", b"x", Content_Type="text/plain")[0] == 415


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec_Fetch_Site": "same-origin"}, 202),
        ({}, 403),
        ({"Sec_Fetch_Site": "none"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin", "Host": "evil.example:8081"}, 403),
        ({"Sec_Fetch_Site": "same-origin", "Origin": "http://evil.example"}, 403),
    ],
)
def test_the_dashboard_alone_cancels_by_get(headers: dict[str, str], status: int) -> None:
    job = Served()
    with serving(job=job) as ask:
        assert ask("GET", f"/jobs/{JOB}/yarn-cancel", **headers)[0] == status
    assert job.cancelled == (status == 202)


@pytest.mark.parametrize(
    "place",
    [
        "http://evil.example/x",
        "ftp://evil.example/x",
        "s3://bucket/savepoints",
        "/etc",
        "/savepoints-of-others",
        "/savepoints/../etc",
        "file:///savepoints/%2e%2e/etc",
        "simplecache::file:///savepoints/x",
        "relative",
    ],
)
def test_savepoints_go_to_the_folders_that_were_configured(place: str) -> None:
    with serving() as ask:
        for path, body in [
            (f"/jobs/{JOB}/savepoints", {"target-directory": place}),
            (f"/jobs/{JOB}/stop", {"targetDirectory": place}),
            ("/savepoint-disposal", {"savepoint-path": place}),
        ]:
            status, answer, _ = ask("POST", path, json.dumps(body).encode(), **JSON)
            assert status == 403 and "tidegate.rest.savepoint-dirs" in answer["errors"][0]


def test_what_stands_in_a_url_behind_the_folder_cannot_lead_elsewhere() -> None:
    folders = ("s3://bucket/savepoints?region=eu", "s3://bucket/a", "/sp")
    for good in (
        "s3://bucket/a",
        "s3://bucket/a/b/",
        folders[0],
        "/sp",
        "/sp/100%",
        "file:///sp/x",
    ):
        check_target(good, folders)
    for bad in (
        "s3://bucket/a/x?endpoint_override=evil",
        "s3://bucket/a/#",
        "s3://bucket/a/%2e%2e",
    ):
        with pytest.raises(Forbidden):
            check_target(bad, folders)
    check_target("http://anywhere", ("*",))
    check_target(None, ())


def test_secrets_in_the_parameters_of_a_job_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"db.password": "hunter2", "API-Key": "abc", "my.token": "x"}
    monkeypatch.setitem(EMPTY.settings.parameters, "plain", "told")  # type: ignore[arg-type]
    for key, value in secret.items():
        monkeypatch.setitem(EMPTY.settings.parameters, key, value)  # type: ignore[arg-type]
    with serving() as ask:
        shown = ask("GET", f"/jobs/{JOB}/config")[1]["execution-config"]["user-config"]
    assert shown == {"plain": "told", **dict.fromkeys(secret, "******")}


def test_a_number_without_end_is_a_faulty_request() -> None:
    with serving() as ask:
        for number in ("9" * 5_000, "-1", "²", ""):
            path = f"/jobs/{JOB}/exceptions?maxExceptions={number.replace('²', '%C2%B2')}"
            assert ask("GET", path)[0] == 400


# --- a token --------------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return str(path)


def test_with_a_token_nobody_else_is_answered(token_file: str) -> None:
    with serving(token_file=token_file) as ask:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            status, answer, told = ask("GET", "/jobs", **headers)
            assert status == 401 and told["WWW-Authenticate"] == "Bearer"
            assert "tidegate.rest.token-file" in answer["errors"][0]
        assert ask("GET", "/nowhere")[0] == 401
        assert ask("GET", "/v1/jobs", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_browser_gets_in_by_a_link_that_works_once(token_file: str) -> None:
    with serving(token_file=token_file) as ask:
        assert ask("POST", "/login-links", b"", **JSON)[0] == 401
        known = {"Authorization": f"bearer {TOKEN}"}
        link = urlsplit(ask("POST", "/login-links", b"", **known, **JSON)[1]["url"])
        status, _, told = ask("GET", f"{link.path}?{link.query}")
        assert status == 303 and told["Location"] == "/"
        cookie, *limits = told["Set-Cookie"].split("; ")
        assert set(limits) == {"Path=/", "HttpOnly", "SameSite=Strict"} and TOKEN not in cookie
        assert ask("GET", "/jobs", Cookie=f"other=1; {cookie}")[0] == 200
        assert ask("GET", "/jobs", Cookie=f"{cookie}x")[0] == 401
        assert ask("GET", f"{link.path}?{link.query}")[0] == 404
        assert ask("GET", "/login")[0] == 404


@pytest.mark.parametrize("path", ["/taskmanagers/metrics", "/taskmanagers/metrics?get=cpu"])
def test_a_path_that_ends_in_a_word_is_not_taken_for_an_id(path: str) -> None:
    with serving() as ask:
        assert ask("GET", path)[:2] == (200, [])


def test_a_link_that_is_too_old_lets_nobody_in() -> None:
    clock = ManualClock()
    guard = Guard(RestSettings((0, 0)), TOKEN, clock)
    links = [guard.new_link().partition("=")[2] for _ in range(20)]
    with pytest.raises(NotFound):
        guard.cookie_for(links[0], 80, tls=False)  # too many were asked for since
    assert guard.cookie_for(links[-1], 80, tls=True).endswith("; Secure")
    clock.advance(60_000)
    with pytest.raises(NotFound):
        guard.cookie_for(links[-2], 80, tls=False)


def test_a_token_that_is_none_is_told_before_the_job_starts(
    token_file: str, tmp_path: Path
) -> None:
    path = Path(token_file)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="Other users may read"):
        made(token_file=token_file)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigError, match="can be guessed"):
        made(token_file=token_file)
    with pytest.raises(ConfigError, match="cannot be read"):
        made(token_file=str(tmp_path / "none"))


# --- TLS ------------------------------------------------------------------------------------------


def test_the_interface_speaks_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(cafile=str(authority.pem))
    for keystore, password in [
        (authority.issue("one.pem"), None),
        (authority.issue("two.pem", password="open"), "open"),
        (authority.issue("three.p12", password="open"), "open"),
    ]:
        stores = TlsStores(str(keystore), keystore_password=password)
        with serving(tls, tls=stores) as ask:
            assert ask("GET", "/jobs")[0] == 200


def test_clients_can_be_asked_for_a_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, name="stranger")
    stores = TlsStores(str(authority.issue("own.pem")), truststore=str(authority.pem))
    tls = ssl.create_default_context(cafile=str(authority.pem))
    with serving(tls, tls=stores) as ask:
        with pytest.raises(OSError):
            ask("GET", "/jobs")
        tls.load_cert_chain(stranger.issue("theirs.pem"))
        with pytest.raises(OSError):
            ask("GET", "/jobs")
        known = ssl.create_default_context(cafile=str(authority.pem))
        known.load_cert_chain(authority.issue("client.pem"))
    with serving(known, tls=stores) as ask:
        assert ask("GET", "/jobs")[0] == 200


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "is a JKS store"),
        (b"nothing of that kind", "cannot be opened"),
        (b"", "cannot be opened"),
        (b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "cannot be opened"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_a_certificate_is_told_before_the_job_starts(
    data: bytes | None, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.jks"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=told) as refused:
        made(tls=TlsStores(str(path)))
    assert refused.value.where == "security.ssl.rest.keystore"
    if told == "is a JKS store":
        assert "keytool -importkeystore" in refused.value.remedy
    if told == "cannot be opened":
        assert "keystore-password" in refused.value.remedy


def test_a_wrong_password_and_a_file_without_a_key_are_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    locked = authority.issue("locked.p12", password="open")
    with pytest.raises(ConfigError, match="cannot be opened"):
        made(tls=TlsStores(str(locked), keystore_password="shut"))
    with pytest.raises(ConfigError, match="holds no private key"):
        made(tls=TlsStores(str(authority.pem)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"security.ssl.rest.enabled": "true"}, "there is no security.ssl.rest.keystore"),
        (
            {
                "security.ssl.rest.enabled": "true",
                "security.ssl.rest.keystore": "own.pem",
                "security.ssl.rest.authentication-enabled": "true",
            },
            "security.ssl.rest.truststore is not",
        ),
    ],
)
def test_half_a_configuration_is_refused(given: dict[str, str], told: str) -> None:
    from tidegate.config.configuration import Configuration

    with pytest.raises(ConfigError, match=told):
        rest_settings(Configuration.from_dict({"rest.port": "0", **given}))


def test_nothing_secret_is_in_the_text_of_settings() -> None:
    stores = TlsStores("own.pem", "hunter2", "hunter3", "trusted.pem", "hunter4")
    assert "hunter" not in repr(RestSettings((0, 0), tls=stores))
