"""Runtimes of jobs: their interface, and how one is found by name.

The surface names no runtime: `local` and `spark` are ours, others come from the entry point group
`tidegate.runtimes`. An entry point names a function, which is called with the job's configuration
(and, for Spark, the session by keyword ``spark``) and returns a ``Runtime``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidegate.config import execution
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tidegate.api.job import JobClient
    from tidegate.config.configuration import Configuration
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation

GROUP: Final = "tidegate.runtimes"

# Ours are found without the package's metadata, which takes longer to search than they to load,
# and is not there where the source is used as it lies.
_OURS: Final = {
    "local": "tidegate.minicluster.minicluster:LocalRuntime",
    "spark": "tidegate.spark.elastic:SparkRuntime",
}


class Runtime(Protocol):
    """Supplies slots to jobs, and a driver that runs them."""

    def submit(self, graph: JobGraph) -> JobClient:
        """Start a job; what it starts from is ``graph.settings.restore``.

        Returns as soon as the job is accepted. Raises ConfigError if it cannot run here.
        """
        ...


def load_of_spark(module: str, *, where: str) -> ModuleType:
    """Loads a module that needs PySpark; raises ConfigError without it. where: named in errors."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidegate"):
            raise
        raise ConfigError(
            f"PySpark cannot be used: {error}",
            where=where,
            remedy="Install it: pip install 'tidegate[spark]'.",
        ) from None


def prepare_local() -> None:
    """Starts to load modules for slots of local jobs while the program builds its first job."""
    importlib.import_module("tidegate.minicluster.forking").forking().prepare()


def load_runtime(name: str) -> Callable[..., Runtime]:
    """Loads the factory of a runtime by its name.

    Raises ConfigError for a name that nobody supplies, and for one whose packages are missing.
    """
    target = _OURS.get(name) or _entry_point(name)
    module, _, attribute = target.partition(":")
    try:
        return cast("Callable[..., Runtime]", getattr(importlib.import_module(module), attribute))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidegate"):
            raise
        raise ConfigError(
            f"The runtime {name!r} cannot be loaded: {error}",
            where=target,
            remedy=f"Install what it needs: pip install 'tidegate[{name}]'.",
        ) from None


def _entry_point(name: str) -> str:
    from importlib.metadata import entry_points

    found = {each.name: each.value for each in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join(sorted({*found, *_OURS}))
        raise ConfigError(
            f"There is no runtime {name!r}",
            where=f"entry points of {GROUP!r}",
            remedy=f"Use one of: {known}.",
        )
    return found[name]


def refuse_savepoint_at_end(configuration: Configuration) -> None:
    """Raises ConfigError where a job that leaves no savepoint at its end is told to."""
    option = execution.END_WITH_SAVEPOINT
    if configuration.get(option) is not None:
        raise ConfigError(
            "Only a batch over Spark's shuffle ends with a savepoint, and this job is none",
            where=configuration.where_set(option) or option.key,
            remedy="Run it on Spark with execution.runtime-mode: BATCH and the default "
            "execution.batch-shuffle-mode; a stream leaves a savepoint when it is stopped with one "
            "(tidegate stop).",
        )


class SlotProvider(Protocol):
    """Brings processes to life that serve as slots. Called on the driver's loop; never blocks."""

    tells_ends: bool
    """True if ``failed`` is called for each process that ends, those of lost slots included."""

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

    async def hint(self) -> str:
        """Probable reason why slots do not come, in a sentence for the user, in seconds."""
        ...
