"""Keys of one end of a link, as they travel to a slot."""

from __future__ import annotations

from dataclasses import field

from flinkformat.frozen import frozen


@frozen
class Keys:
    """Keys of one end of a link, as PEM. own: its key, and its certificate with those above it.

    trusted: certificates by which it knows the other end; empty if that need not prove itself.
    """

    own: bytes = field(repr=False)
    trusted: bytes = field(repr=False)
