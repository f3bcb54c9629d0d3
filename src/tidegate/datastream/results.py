"""A stream's records on their way back to the program: one by one, or as a table."""

from __future__ import annotations

import sys
from concurrent import futures
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from tidegate.config import checkpointing, recovery
from tidegate.datastream.process import interrupts
from tidegate.datastream.process.interrupts import Terminated, not_ended, running_jobs
from tidegate.datastream.spark_frames import load_frames
from tidegate.errors import ConfigError, GraphError, TidegateError
from tidegate.graph.transformations import NodeKind, OperatorTransformation, UnionTransformation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    import pandas
    import polars
    import pyarrow as pa

    from tidegate.api.job import JobClient
    from tidegate.api.rows.columns import Columns
    from tidegate.config.configuration import Configuration
    from tidegate.graph.transformations import Transformation
    from tidegate.typeinfo.types import TypeInformation

T = TypeVar("T")

SHOWN_ROWS: Final = 20
"""Records that a notebook shows."""


class CloseableIterator(Generic[T]):
    """Records of a running job; leaving its ``with`` block cancels the job if it still runs.

    So does dropping the iterator, as a ``for`` loop does that is left early; only then nobody waits
    for the job's end. The job waits while nobody takes its records: a bounded number of them is on
    the way. Ctrl-C and SIGTERM suspend it.
    """

    def __init__(self, client: JobClient, name: str) -> None:
        self._client = client
        self._name = name
        self._rows = cast("Iterator[T]", iter(client.collected(name)))
        self._begun = False
        self._ended = False

    def __repr__(self) -> str:
        return f"<CloseableIterator over the records of {self._client!r}>"

    def _ipython_display_(self) -> None:
        """The first records as they come, in a notebook; they stay to be taken."""
        from tidegate.datastream.process.notebook import Shown, show_live
        from tidegate.graph.html import paragraph, records

        shown = paragraph("No record has come yet.")

        def look() -> Shown:  # on the display's thread
            nonlocal shown
            over = self._begun or self._client.get_job_execution_result().done()
            if not self._begun:
                try:
                    rows = self._client.collected_waiting(self._name, SHOWN_ROWS)
                except TidegateError as error:
                    return Shown(paragraph(str(error)), final=over)
                over = over or len(rows) >= SHOWN_ROWS
                if rows:
                    shown = records(rows)
            return Shown(shown, final=over)

        show_live(look, repr(self))

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self) -> T:
        """The next record, waiting for it. Raises StopIteration, or what ended the job."""
        if self._ended:
            raise StopIteration
        self._begun = True
        try:
            return next(self._rows)
        except StopIteration:
            self._ended = True
            self._client.get_job_execution_result().result()
            raise
        except TidegateError:
            self._ended = True
            # The records end before the job: a program that ends now would leave a running one.
            futures.wait([self._client.get_job_execution_result()], interrupts.CANCEL_TIMEOUT_S)
            raise
        except (KeyboardInterrupt, SystemExit) as told:
            self._suspend(told)
            raise

    def take(self, count: int) -> list[T]:
        """The next records, at most so many."""
        return list(islice(self, count))

    def get_job_client(self) -> JobClient:
        """The job that the records come from."""
        return self._client

    def close(self) -> None:
        """Cancels the job, unless it has ended. Raises JobFailed if it failed unseen."""
        if not self._ended:
            self._ended = True
            cancel(self._client)

    def _suspend(self, told: KeyboardInterrupt | SystemExit) -> None:
        if not self._ended:
            self._ended = True
            running_jobs().suspend_for(told, self._client)

    def __enter__(self) -> CloseableIterator[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, KeyboardInterrupt | Terminated):
            self._suspend(error)
        else:
            self.close()

    def __del__(self) -> None:
        # Any thread may come by here, the driver's too: so nothing is waited for.
        if not getattr(self, "_ended", True) and not sys.is_finalizing():
            self._client.cancel()


def cancel(client: JobClient) -> None:
    """Cancel a job and wait for its end. Raises JobFailed if it failed, or does not end."""
    try:
        client.cancel().result(timeout=interrupts.CANCEL_TIMEOUT_S)
    except TimeoutError as error:
        raise not_ended(client, "cancelled") from error


def check_bounded(transformations: Sequence[Transformation], call: str) -> None:
    """Raises GraphError if a source of the program goes on for ever."""
    left, seen = list(transformations), set[int]()
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, OperatorTransformation):
            left += one.inputs
            source: Any = one.operator
            if one.kind is NodeKind.SOURCE and not source.bounded:
                raise GraphError(
                    f"The job never ends: its source '{one.name}' has no end",
                    where=call,
                    remedy="Take execute_and_collect, which gives records while the job runs, or "
                    "write them with sink_to.",
                )
        elif isinstance(one, UnionTransformation):
            left += one.inputs
        else:
            left.append(one.input)


def table(client: JobClient, name: str, declared: TypeInformation | None) -> pa.Table:
    """All records of a job that ends, as one table. Raises what ends the job, and BadRecord."""
    from tidegate.api.rows.columns import Columns

    columns = Columns.of_type(declared)
    try:
        batches = [columns.batch(chunk) for chunk in client.collected_chunks(name)]
        made = columns.table(batches)
        client.get_job_execution_result().result()
    except BaseException:
        cancel(client)
        raise
    return made


def as_pandas(made: pa.Table) -> pandas.DataFrame:
    try:
        import pandas as _  # noqa: F401  # what pyarrow needs
    except ModuleNotFoundError as error:
        raise _not_installed("pandas") from error
    return made.to_pandas()


def as_polars(made: pa.Table) -> polars.DataFrame:
    """A table for polars. Raises ConfigError if it is not installed or lacks a type."""
    import pyarrow as pa

    try:
        import polars
    except ModuleNotFoundError as error:
        raise _not_installed("polars") from error
    if wide := [f"'{each.name}'" for each in made.schema if pa.types.is_decimal256(each.type)]:
        raise GraphError(
            f"polars has no decimals of more than 38 digits, as in {', '.join(wide)}",
            where="to_polars",
            remedy="Make them smaller or text in a step before, or take to_arrow.",
        )
    return cast("polars.DataFrame", polars.from_arrow(made))


def columns_for_spark(type_info: TypeInformation | None, schema: object) -> Columns:
    """The columns that a Spark DataFrame gets. Raises GraphError for a type that Spark lacks."""
    from tidegate.api.rows.columns import Columns
    from tidegate.connectors.frames.frame_files import spark_schema

    columns = Columns.of_type(type_info)
    if schema is not None:
        columns = Columns(load_frames().declared_schema(schema))
    return columns if columns.schema is None else Columns(spark_schema(columns.schema))


class SparkFrame:
    """A stream on its way to a Spark DataFrame: the step before the files, the files, the frame.

    Raises ConfigError if there is no session or no place for the files.
    """

    def __init__(
        self, columns: Columns, session: object, settings: Configuration, folder: str | None
    ) -> None:
        from tidegate.connectors.files.file_sink import FileSink
        from tidegate.operators.arrow import ToColumns

        self._schema = columns.schema
        self._output = load_frames().FrameOutput(
            session,
            folder,
            settings.get(checkpointing.CHECKPOINT_DIRECTORY),
            resumed=settings.get(recovery.RESTORE_PATH) is not None,
        )
        self.columns = ToColumns(columns)
        self.sink = FileSink.parquet(self._output.folder)

    def read(self) -> object:
        from tidegate.connectors.frames.frame_files import settle

        return self._output.read(settle(self._output.folder, self._schema))


def _not_installed(package: str) -> ConfigError:
    return ConfigError(
        f"{package} is not installed",
        where=f"to_{package}",
        remedy=f"Install it: pip install {package}; or take to_arrow.",
    )
