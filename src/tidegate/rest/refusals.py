"""Errors as answers, each with its status of HTTP. Source: REST §1."""

from __future__ import annotations


class RestError(Exception):
    """An error as an answer. status: of HTTP."""

    status = 500

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class BadRequest(RestError):
    """The request is malformed."""

    status = 400


class Unauthorized(RestError):
    """The request carries no valid token."""

    status = 401


class UnsupportedMediaType(RestError):
    """The body is declared as something else than JSON."""

    status = 415


class Forbidden(RestError):
    """The request is not allowed."""

    status = 403


class NotFound(RestError):
    """The requested thing does not exist."""

    status = 404


class RequestTimeout(RestError):
    """The request did not arrive in time."""

    status = 408


class Conflict(RestError):
    """The job's state does not allow the request."""

    status = 409


class TimedOut(RestError):
    """Whoever was asked has not answered in time."""

    status = 504


class Moved(RestError):
    """The requested page is elsewhere."""

    status = 308


def unresolved(kind: str, name: str, value: object) -> BadRequest:
    """The error for a parameter of a request in Flink's words. kind: ``path`` or ``query``."""
    return BadRequest(
        f"Bad request, could not parse parameters: Cannot resolve {kind} parameter ({name}) from "
        f'value "{value}".'
    )
