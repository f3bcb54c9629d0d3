"""PyFlink's modules, with Tidegate behind them: a program for PyFlink runs as it is.

``install()`` before the first import of ``pyflink``, or ``tidegate run --pyflink job.py``.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec

from tidegate.errors import ConfigError
from tidegate.pyflink.imports import is_installed, put_in_place, uninstall

__all__ = ["install", "is_installed", "uninstall"]


def install() -> None:
    """Makes ``import pyflink`` and its submodules give Tidegate's classes in this process.

    Slots of the jobs that it starts import them too. If PyFlink itself is installed, Tidegate's
    modules come first, and a warning says so. Raises ConfigError if PyFlink is imported already.

    >>> tidegate.pyflink.install()
    >>> from pyflink.datastream import StreamExecutionEnvironment
    """
    if is_installed():
        return
    imported = sys.modules.get("pyflink")
    if imported is not None:
        raise ConfigError(
            f"PyFlink itself is imported already, from {imported.__file__}",
            where="tidegate.pyflink.install",
            remedy="Call it before the first import of pyflink.",
        )
    real = find_spec("pyflink")
    if real is not None:
        warnings.warn(
            f"PyFlink is installed ({real.origin}); in this process, import pyflink gives "
            "Tidegate's classes instead",
            stacklevel=2,
        )
    put_in_place()
