"""Decides, before a request is answered, who may send it and to what effect.

A browser sends requests for any page that it shows. So the job answers under its own names alone, a
change has to look like nothing that a page of another site can send, and where there is a token
nobody is answered without it.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from tidegate.rest.names import announced, is_everywhere
from tidegate.rest.refusals import Forbidden, NotFound, Unauthorized, UnsupportedMediaType
from tidegate.storage import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.clock import Clock
    from tidegate.model.settings import RestSettings

LOGIN: Final = "/login"
ANYWHERE: Final = "*"
LINK_MS: Final = 60_000
"""How long a link for logging in can be used, once."""

_JSON: Final = "application/json"
_READING: Final = ("GET", "HEAD")
_LINKS_MAX: Final = 16


class Guard:
    """Refuses requests from strangers. token: None if everybody may ask."""

    def __init__(self, settings: RestSettings, token: str | None, clock: Clock) -> None:
        own = {"localhost", announced(settings), *settings.allowed_hosts}
        if is_everywhere(settings.bind_address):
            own.add(socket.gethostname())
        else:
            own.add(settings.bind_address)
        self._names = {name.lower() for name in own}
        self._token = token
        self._clock = clock
        self._session = secrets.token_urlsafe(32)
        self._links: dict[str, int] = {}

    def check(
        self, method: str, path: str, headers: Mapping[str, str], *, here: str, has_body: bool
    ) -> None:
        """Raises RestError for a request that must not be answered. here: the address dialled."""
        host = headers.get("Host", "")
        if not self._is_ours(_name(host), here):
            raise Forbidden(
                f"The job is not asked under the name '{host}'. Names beside localhost are "
                "those of rest.address and tidegate.rest.allowed-hosts."
            )
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Forbidden(f"A page of {origin} may not ask the job.")
        if method not in _READING:
            _check_change(method, headers, has_body=has_body)
        if self._token is not None and path != LOGIN and not self._is_known(headers):
            raise Unauthorized(
                "A token is required (tidegate.rest.token-file). Programs send 'Authorization: "
                "Bearer <token>'; for a browser, get a one-time link with POST /login-links."
            )

    def new_link(self) -> str:
        """Path and query that let a browser in once."""
        now_ms = self._clock.monotonic_ms()
        self._links = {code: until for code, until in self._links.items() if until > now_ms}
        while len(self._links) >= _LINKS_MAX:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(32)
        self._links[code] = now_ms + LINK_MS
        return f"{LOGIN}?code={code}"

    def cookie_for(self, code: str, port: int, *, tls: bool) -> str:
        """Cookie for a login link. Raises NotFound for a link that was used or is too old."""
        until_ms = self._links.pop(code, 0)
        if until_ms <= self._clock.monotonic_ms():
            raise NotFound("This link has been used, or is too old. Ask for another.")
        secure = "; Secure" if tls else ""
        name = _cookie_name(port)
        return f"{name}={self._session}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _is_ours(self, name: str, here: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # A page that was served from the address that was dialled is one of this machine.
        return address.is_loopback or str(address) == _without_scope(here)

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return _same(given.strip(), self._token or "")
        try:
            cookies = SimpleCookie(headers.get("Cookie", ""))
        except CookieError:
            return False
        return any(
            name.startswith(_cookie_name("")) and _same(morsel.value, self._session)
            for name, morsel in cookies.items()
        )


def _check_change(method: str, headers: Mapping[str, str], *, has_body: bool) -> None:
    if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden("A page of another site may not change the job.")
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    # A browser asks before it sends any other method than POST for a page of another site.
    if kind != _JSON and (method == "POST" or has_body):
        raise UnsupportedMediaType(
            f"A change is asked for with the header 'Content-Type: {_JSON}', not '{kind}'."
        )


def check_own_page(headers: Mapping[str, str]) -> None:
    """Raises Forbidden for a change by GET, unless the browser says that a page of the job asks.

    Any page can make a browser send a GET, so what says nothing is refused too.
    """
    if headers.get("Sec-Fetch-Site") != "same-origin":
        raise Forbidden(
            "Only the job's own dashboard may cancel by GET, in a browser that says so with "
            "'Sec-Fetch-Site: same-origin'. Others send PATCH /jobs/:jobid."
        )


def check_target(location: str | None, folders: tuple[str, ...]) -> None:
    """Raises Forbidden for a place outside the folders that requests may name."""
    if location is None or ANYWHERE in folders:
        return
    wanted, allowed = paths.absolute(location), [paths.absolute(folder) for folder in folders]
    if wanted in allowed:
        return
    # What stands behind these signs in a URL may lead to another host, or out of the folder.
    signs = ("::",) if paths.is_local(wanted) else ("::", "?", "#", "%", "\\")
    inside = any(wanted.startswith(paths.join(folder, "")) for folder in allowed)
    if not inside or ".." in wanted.split("/") or any(sign in wanted for sign in signs):
        raise Forbidden(
            f"{location} is not one of the folders that may be named over HTTP: those below "
            "execution.checkpointing.savepoint-dir and tidegate.rest.savepoint-dirs."
        )


def _name(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _without_scope(address: str) -> str:
    """An address as others write it: where one socket takes both kinds, IPv4 comes within IPv6."""
    return address.partition("%")[0].removeprefix("::ffff:")


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode())


def _cookie_name(port: int | str) -> str:
    # Browsers send cookies to all ports of a host, and each job has a port of its own.
    return f"tidegate-{port}"
