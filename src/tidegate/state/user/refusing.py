"""Replacements for keyed state where it may not be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flinkformat.key_groups import KeyGroupRange

Entries = dict[object, object]


class _Refusing(dict[object, object]):
    def __init__(self, refusal: Callable[[], Exception]) -> None:
        super().__init__()
        self._refusal = refusal

    def get(self, key: object, default: object = None, /) -> object:
        raise self._refusal()

    def __setitem__(self, key: object, value: object) -> None:
        raise self._refusal()

    def pop(self, key: object, default: object = None, /) -> object:
        raise self._refusal()


def refusing_maps(key_groups: KeyGroupRange, max_parallelism: int) -> list[Entries]:
    """An empty dict for each key group of a subtask; any other place refuses to be used.

    There is one more than there are key groups, since the group of a key not yet set is -1.
    """
    maps: list[Entries] = [_Refusing(_foreign_key)] * max_parallelism
    maps.append(_Refusing(_no_key))
    for group in key_groups:
        maps[group] = {}
    return maps


def _no_key() -> Exception:
    return UserError(
        "Keyed state was used without a current key",
        where="outside of the processing of a keyed record, such as in open or close, or for a "
        "broadcast record",
        remedy="Read and write keyed state only while a keyed record or a timer is processed.",
    )


def _foreign_key() -> Exception:
    return AssertionError("the current key belongs to another subtask's key groups")
