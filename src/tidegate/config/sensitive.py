"""Recognises secrets among settings by their keys, as in Flink's ``GlobalConfiguration``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN: Final = "******"

_SIGNS: Final = (
    "password",
    "secret",
    "fs.azure.account.key",
    "apikey",
    "api-key",
    "auth-params",
    "service-key",
    "token",
    "basic-auth",
    "jaas.config",
    "http-headers",
)


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Copy of the settings, with secret values hidden."""
    return {key: HIDDEN if is_secret(key) else value for key, value in settings.items()}


def is_secret(key: str) -> bool:
    """True if the value of this key must not be shown."""
    lower = key.lower()
    return any(sign in lower for sign in _SIGNS)
