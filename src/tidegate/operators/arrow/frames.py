"""Between Arrow batches and the data frames that a user's batch function works on.

pandas and polars are imported when a function asks for them or returns one, never before.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pyarrow as pa

from tidegate.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Callable

Form = Literal["arrow", "table", "pandas", "polars"]
"""What a batch function is given: a RecordBatch, a Table, or a data frame of pandas or polars."""

_FORMS: Final = ("arrow", "table", "pandas", "polars")


def check_form(form: str, call: str) -> None:
    """Raises GraphError for an unknown form, or one whose library is not installed."""
    if form not in _FORMS:
        raise GraphError(
            f"There is no form {form!r} of batches",
            where=call,
            remedy=f"Use one of {', '.join(_FORMS)}.",
        )
    if form in ("pandas", "polars") and find_spec(form) is None:
        raise GraphError(
            f"The form of batches is set to {form}, which is not installed",
            where=call,
            remedy=f"Install it: pip install 'tidegate[{form}]', here and on the executors.",
        )


def giver(form: Form) -> Callable[[pa.RecordBatch], Any]:
    """Function that converts a batch to its form."""
    match form:
        case "arrow":
            return lambda batch: batch
        case "table":
            return lambda batch: pa.Table.from_batches([batch])
        case "pandas":
            return lambda batch: batch.to_pandas()
        case "polars":
            return _polars


def _polars(batch: pa.RecordBatch) -> Any:
    import polars

    return polars.from_arrow(batch)


def taken(result: object, declared: pa.Schema | None) -> pa.RecordBatch | None:
    """The batch of a table or data frame; None for anything else.

    declared: brings columns of these names to these types; where the names are others they stay.
    Raises pa.ArrowException, ValueError or TypeError if a value does not fit.
    """
    library = type(result).__module__.partition(".")[0]
    kind = type(result).__name__
    if isinstance(result, pa.RecordBatch):
        return cast("pa.RecordBatch", result)
    if isinstance(result, pa.Table):
        return _whole(cast("pa.Table", result))
    given: Any = result
    if library == "pandas" and kind == "DataFrame":
        names = [str(name) for name in given.columns]
        schema = declared if declared is not None and declared.names == names else None
        batch = pa.RecordBatch.from_pandas(given, schema=schema, preserve_index=False)
        return batch.replace_schema_metadata(None)
    if library == "polars" and kind == "DataFrame":
        from polars import CompatLevel

        table = given.to_arrow(compat_level=CompatLevel.oldest())
        fits = declared is not None and declared.names == table.column_names
        return _whole(table.cast(declared) if fits else table)
    return None


def _whole(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in table.schema], schema=table.schema
    )
