"""Code on its way: user functions as bytes.

Importable modules travel by reference, lambdas and what ``__main__`` defines by value.
"""

from __future__ import annotations

import pickle

import cloudpickle

from tidegate.errors import GraphError, UserCodeFailed


def dumps(value: object, *, name: str) -> bytes:
    """The value as bytes that ``loads`` reads in another process.

    name: of the operator, for the message. Raises GraphError where the value cannot be pickled.
    """
    try:
        return cloudpickle.dumps(value, protocol=5)
    except Exception as error:
        raise GraphError(
            f"operator '{name}' cannot be sent to the slots: {error}",
            where=f"operator '{name}'",
            remedy="Make what it holds picklable: open files, connections and locks in `open`, "
            "not in the constructor or the enclosing function.",
        ) from error


def loads(data: bytes, *, name: str) -> object:
    """What ``dumps`` was given. Raises UserCodeFailed where it cannot be made here."""
    try:
        return pickle.loads(data)
    except Exception as error:
        raise UserCodeFailed(
            f"operator '{name}' cannot be loaded in this process: {type(error).__name__}: {error}",
            where=f"operator '{name}'",
            remedy="Install the modules it uses where the slots run; on Spark, "
            "`SparkContext.addPyFile` ships them.",
        ) from error
