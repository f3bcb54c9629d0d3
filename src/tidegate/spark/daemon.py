"""Spark's own daemon, which forks Python workers, with all loaded that a slot needs.

Spark starts it for each executor where ``spark.python.daemon.module`` is ``tidegate.spark.daemon``.
A worker, and so a slot, then starts within milliseconds, where it would otherwise import for half a
second. Nothing of a user is loaded. If anything is missing or goes wrong, this process becomes the
daemon that Spark would have started by itself.
"""

from __future__ import annotations

import os
import sys
from typing import Final

MODULE: Final = "tidegate.spark.daemon"

SPARKS_MODULE: Final = "pyspark.daemon"

_WORKER: Final = ("pyspark.worker", "pyspark.sql.pandas.serializers", "pyarrow")
"""What Spark's own part of a slot's worker loads."""


def main() -> None:
    """Loads modules and serves as the daemon, which exits by itself."""
    try:
        load()
    except Exception as error:
        sys.stderr.write(f"tidegate: slots start more slowly, as {MODULE} cannot load: {error!r}\n")
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", SPARKS_MODULE, *sys.argv[1:]])
    from pyspark.daemon import manager

    manager()


def load() -> None:
    """Loads what workers need. Raises whatever a package raises that cannot be loaded."""
    from tidegate.model.versions import versions
    from tidegate.slot.process.preload import (
        SLOT,
        WITH_ARROW,
        modules_of_any_job,
        preload,
        preload_known,
        reseed,
    )

    versions()  # which each slot tells, and reading them takes 20 ms
    preload((*_WORKER, "tidegate.spark.slot_task", *SLOT))
    preload_known(modules_of_any_job())
    preload_known(WITH_ARROW)
    # Each worker has all of these look again for what has come since, and one of them would read
    # the directory of Spark's jar for 150 ms. Those that it makes anew know what was read here.
    sys.path_importer_cache.clear()
    daemon = os.getpid()
    # Forks of a worker itself keep what a function has seeded.
    os.register_at_fork(after_in_child=lambda: reseed() if os.getppid() == daemon else None)


if __name__ == "__main__":
    main()
