"""Protection of the links of one run of a driver; makes the invitations that tell slots of it."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.model.addresses import leaves_machine
from tidegate.model.settings import LinkProtection
from tidegate.transport.keys import read_keys
from tidegate.transport.tcp import TcpNetwork

if TYPE_CHECKING:
    from tidegate.model.control import SlotInvitation
    from tidegate.model.keys import Keys
    from tidegate.model.settings import LinkSettings
    from tidegate.transport.authority import Authority

STORES_PREFIX: Final = "security.ssl.internal"
_DRIVER: Final = "driver"


class LinkSecurity:
    """Makes the driver's network, and the invitations of slots, each with keys of its own.

    host: the address that the driver binds. announce: another one that leads there; None for the
    same. Links that stay on the machine are plain unless the settings ask for more. Raises
    ConfigError for certificates that are none.
    """

    def __init__(self, settings: LinkSettings, host: str, *, announce: str | None = None) -> None:
        self.secret: Final = secrets.token_bytes(32)
        self._host = host
        self._announce = announce
        self._given: Keys | None = None
        self._authority: Authority | None = None
        beyond = leaves_machine(host, announce)
        encrypted = settings.protection is LinkProtection.ON or (
            beyond and settings.protection is LinkProtection.AUTO
        )
        self.sealed: Final = beyond and not encrypted
        if encrypted and settings.stores is not None:
            self._given = read_keys(settings.stores, prefix=STORES_PREFIX)
        elif encrypted:
            # Not needed where links stay on the machine, and slow to import.
            from tidegate.transport.authority import Authority

            self._authority = Authority()

    def network(self, *, ports: tuple[int, int] = (0, 0)) -> TcpNetwork:
        return TcpNetwork(
            secret=self.secret,
            host=self._host,
            announce=self._announce,
            ports=ports,
            keys=self._keys(_DRIVER),
            sealed=self.sealed,
        )

    @property
    def shared(self) -> bool:
        """True if invitations differ in their request alone: no slot has keys of its own."""
        return self._authority is None

    def invite(self, invitation: SlotInvitation, request: str) -> SlotInvitation:
        """Invitation for one slot. request: the provider's name for it."""
        return replace(invitation, request=request, keys=self._keys(request), sealed=self.sealed)

    def _keys(self, name: str) -> Keys | None:
        return self._given if self._authority is None else self._authority.issue(name)
