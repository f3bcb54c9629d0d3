"""Report of a new job on the run before it, and on what that has kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import structlog

    from tidegate.ha.chain import JobRecord
    from tidegate.model.ids import CheckpointId
    from tidegate.storage.checkpoints import CheckpointStorage


async def tell_of_former(
    former: JobRecord,
    storage: CheckpointStorage,
    run_blocking: Callable[[Callable[[], object]], Awaitable[object]],
    log: structlog.typing.FilteringBoundLogger,
) -> None:
    """Warns of a run that could have been resumed, and of checkpoints that nobody uses.

    storage: of the former run.
    """
    try:
        kept, size = cast("tuple[list[CheckpointId], int]", await run_blocking(storage.kept))
    except StorageFailed as error:
        log.warning("checkpoints of the earlier run could not be listed", error=str(error))
        kept, size = [], 0
    facts: dict[str, object] = {}
    if kept:
        facts = {
            "kept_checkpoints": kept,
            "size_bytes": size,
            "removed_by": f"tidegate prune {storage.root}",
        }
    if former.completed and not former.status.is_terminal:
        log.warning(
            "the job starts from nothing, though its earlier run had not ended; "
            "'--from latest' would have resumed that run",
            newest_checkpoint=former.completed[-1].location,
            **facts,
        )
    elif kept:
        log.warning("the job starts from nothing; its earlier run kept checkpoints", **facts)
