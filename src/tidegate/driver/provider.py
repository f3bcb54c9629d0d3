"""Interface of a runtime, which supplies slots and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.errors import TidegateError
    from tidegate.model.control import SlotInvitation


class SlotProvider(Protocol):
    """Brings processes to life that serve as slots. Called on the driver's loop; never blocks."""

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        """The driver is ready to be dialled.

        failed: to be called, from any thread, when the process of a request has ended in failure,
        with the name that its ``Offer`` gives as ``request``, and whether asking again would not
        help. ended: to be called, from any
        thread, when somebody outside has ended the job, with who it was.
        """
        ...

    def request(self, count: int) -> None:
        """Bring that many more slots."""
        ...

    def release(self) -> None:
        """No slots are needed any more: those that have not come need not."""
        ...

    async def close(self) -> None:
        """Wait until the slots have gone, within a limit, and end those that have not."""
        ...

    @property
    def hint(self) -> str:
        """Probable reason why slots do not come, in a sentence for the user."""
        ...
