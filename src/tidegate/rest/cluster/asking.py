"""Asks the REST interfaces of jobs, with a limit for each answer."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from flinkformat.frozen import frozen
from tidegate.rest.names import is_everywhere

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from tidegate.driver.client.door import DoorSign

ASK_S: Final = 2.0
"""How long a job may take to tell what a list shows of it."""

FORWARD_S: Final = 15.0
"""How long a job may take for an answer that is passed on; slots have five seconds of it."""


class NoAnswer(Exception):
    """A job has not answered; says why. gone: its driver is known not to live any more."""

    def __init__(self, why: str, *, gone: bool = False) -> None:
        super().__init__(why)
        self.gone: Final = gone


@frozen
class Answer:
    """An answer of a job. kind: the media type, with its parameters."""

    status: int
    body: bytes
    kind: str

    def passed_on(self) -> web.Response:
        return web.Response(status=self.status, body=self.body, headers={"Content-Type": self.kind})


class Asking:
    """Asks jobs. Use it in an ``async with`` statement.

    token: sent along; None if jobs want none. tls: for jobs with HTTPS. ask_s: how long a job may
    take to answer a question of ours.
    """

    def __init__(self, token: str | None, tls: ssl.SSLContext, *, ask_s: float = ASK_S) -> None:
        self._ask_s = ask_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._has_secret = token is not None
        self._tls = tls

    async def __aenter__(self) -> Asking:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def json(self, sign: DoorSign, path: str) -> Any:
        """A job's answer to a question. Raises NoAnswer."""
        answer = await self.ask(sign, "GET", path, within_s=self._ask_s)
        try:
            if answer.status == 200:
                return json.loads(answer.body)
        except ValueError:
            pass
        raise NoAnswer(_refusal(sign, answer))

    async def ask(
        self,
        sign: DoorSign,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        within_s: float = FORWARD_S,
    ) -> Answer:
        """A job's answer to any request. Raises NoAnswer."""
        check_reachable(sign)
        if self._has_secret and is_dead(sign):
            # Whoever has its port now is not to see the token.
            raise NoAnswer(f"{_who(sign)} does not live any more", gone=True)
        limit = aiohttp.ClientTimeout(total=within_s)
        try:
            async with self._session.request(
                method,
                f"{sign.rest}{path}",
                data=body or None,
                headers=headers,
                timeout=limit,
                allow_redirects=False,
            ) as response:
                told = await response.read()
                return Answer(response.status, told, response.headers.get("Content-Type", ""))
        except TimeoutError as error:
            raise NoAnswer(f"{_who(sign)} has not answered within {within_s:g} s") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise NoAnswer(
                f"{_who(sign)} has a certificate that is not trusted: {error}. Name one that is in "
                "security.ssl.rest.truststore."
            ) from error
        except aiohttp.ClientConnectorError as error:
            # The name of another machine may lead elsewhere than there.
            refused = isinstance(error.os_error, ConnectionRefusedError)
            gone = refused and sign.host == socket.gethostname()
            why = f"{_who(sign)} cannot be reached: {error}"
            if refused and not gone:
                why += "; if it was killed there, 'tidegate run --from latest' goes on with the job"
            raise NoAnswer(why, gone=gone) from error
        except aiohttp.ClientError as error:
            raise NoAnswer(f"{_who(sign)} has broken off: {error}") from error


def check_reachable(sign: DoorSign) -> None:
    """Raises NoAnswer where asking could only reach somebody else."""
    if not sign.rest:
        raise NoAnswer(
            f"{_who(sign)} serves no REST interface; start the job with rest.port=0 for one"
        )
    try:
        host = urlsplit(sign.rest).hostname or ""
    except ValueError as error:
        raise NoAnswer(f"{_who(sign)} has signed with {sign.rest!r}: {error}") from error
    if sign.host != socket.gethostname() and (_is_loopback(host) or is_everywhere(host)):
        raise NoAnswer(
            f"{_who(sign)} serves its REST interface on that machine alone; set rest.bind-address "
            "and rest.address there"
        )


def is_dead(sign: DoorSign) -> bool:
    """True if the driver's process is known not to live."""
    if sign.host != socket.gethostname():
        return False
    try:
        os.kill(sign.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refusal(sign: DoorSign, answer: Answer) -> str:
    if answer.status == 401:
        return (
            f"{_who(sign)} refuses to answer (401): give tidegate serve the job's "
            "tidegate.rest.token-file"
        )
    if answer.status == 403:
        return (
            f"{_who(sign)} refuses to answer (403) under the name of {sign.rest}: set rest.address "
            "or tidegate.rest.allowed-hosts there"
        )
    return f"{_who(sign)} has answered with status {answer.status}"


def _who(sign: DoorSign) -> str:
    return f"The driver (process {sign.pid} on {sign.host})"
