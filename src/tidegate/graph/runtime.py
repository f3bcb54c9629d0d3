"""Where jobs run: what a runtime is to a program, and how one is found by name.

The surface names no runtime: `local` and `spark` are ours, others come from the entry point group
`tidegate.runtimes`. What an entry point names is called with the job's configuration (and, for
Spark, the session by keyword ``spark``) and gives a ``Runtime``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final, Protocol, cast

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.api.client import JobClient
    from tidegate.graph.job_graph import JobGraph

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

        Returns as soon as the job is accepted. Raises ConfigError where it cannot run here.
        """
        ...


def load_runtime(name: str) -> Callable[..., Runtime]:
    """What makes the runtime of that name.

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
        ) from error


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
