"""Secrets in files that no other user can read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.errors import ConfigError

CHARACTERS_MIN: Final = 16

SNAPSHOTS_KEY_FILE: Final = "tidegate.security.snapshots.key-file"
"""The option that names the file of `signing_key`."""


def read_secret(path: str, what: str, *, where: str) -> str:
    """Content of a secret file, without surrounding space. what: named in errors, like "the token".

    where: the option that names the file. Raises ConfigError for one that cannot be read, that
    others may read, or that holds too little.
    """
    file = Path(path)
    try:
        secret = file.read_text("utf-8").strip()
        others = file.stat().st_mode & 0o077
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The file of {what} cannot be read: {error}",
            where=where,
            remedy="Make it: (umask 077; openssl rand -hex 32 > FILE).",
        ) from error
    if others:
        raise ConfigError(
            f"Other users may read {what} in {path}", where=where, remedy=f"chmod 600 {path}"
        )
    if len(secret) < CHARACTERS_MIN:
        raise ConfigError(
            f"{what.capitalize()} in {path} has {len(secret)} characters, which can be guessed",
            where=where,
            remedy=f"Take at least {CHARACTERS_MIN}, from chance: openssl rand -hex 32.",
        )
    return secret


def signing_key(key_file: str | None) -> bytes | None:
    """Key that signs snapshots, from a file; None without one. Raises ConfigError."""
    if key_file is None:
        return None
    return read_secret(key_file, "the key", where=SNAPSHOTS_KEY_FILE).encode()
