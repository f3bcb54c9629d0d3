"""The invitation of this process's slots, and of tasks that tell it what they do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidegate.config.log import logs_of_program
from tidegate.model.control import SlotInvitation
from tidegate.pyflink.imports import is_installed

if TYPE_CHECKING:
    from tidegate.model.settings import SlotSettings


def invitation(settings: SlotSettings, driver: str, secret: bytes) -> SlotInvitation:
    """Invitation of a program that runs here. driver: address to dial."""
    return SlotInvitation(
        driver=driver,
        secret=secret,
        settings=settings,
        pyflink=is_installed(),
        logs=logs_of_program(),
        argv=tuple(sys.argv),
    )
