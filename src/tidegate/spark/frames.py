"""Spark DataFrames in and out, by way of Parquet files; the DataFrame API only."""

from __future__ import annotations

import atexit
import secrets
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as spark_types

from tidegate.connectors.frames.frame_files import holds_files, rows_in, spark_schema
from tidegate.errors import ConfigError, JobCanceled, StorageFailed, with_article
from tidegate.spark.access.access import JobNames, access_to, is_connect
from tidegate.storage import paths
from tidegate.storage.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_WRITING: Final = threading.Lock()
"""Held while settings of a session are changed; nothing stays behind in it."""

_AS_WE_READ: Final = {
    # In Spark's default of 96 bits, times lose their zone, and far-away times change.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
}
_LOOK_AGAIN_S: Final = 0.5

_UNFIT: Final[dict[str, str]] = {
    "interval": "cast it to a string, or make it a number of days or seconds",
    "interval day": "cast it to a string, or make it a number of seconds",
    "interval year": "cast it to a string, or make it a number of months",
    "variant": "make it text with to_json, or take values out with variant_get",
    "udt": "take its parts, or cast it to what it is made of",
    "geometry": "make it bytes with ST_AsBinary",
    "geography": "make it bytes with ST_AsBinary",
}


class StagedFrame:
    """A DataFrame that Spark writes once, before the job runs: a ``Staged``.

    Raises ConfigError for what is no DataFrame of a finite query, and, naming all columns at fault,
    for one that Parquet would not give back as it was.
    """

    def __init__(self, frame: object, folder: str | None) -> None:
        if not isinstance(frame, DataFrame):
            raise ConfigError(
                f"This is not a Spark DataFrame but {with_article(type(frame))}",
                where="from_spark",
                remedy="Give one, such as spark.table('orders') or spark.read.parquet(…).",
            )
        _check(frame)
        self._frame = frame
        self._folder = None if folder is None else paths.absolute(folder)
        self._tag = f"tidegate-frame-{secrets.token_hex(6)}"
        self._names = JobNames((self._tag,), "tidegate writes a DataFrame")
        self._cancelled = False

    @property
    def frame(self) -> DataFrame:
        return self._frame

    @property
    def can_be_read_in_place(self) -> bool:
        """True if a batch can find out how many partitions it has."""
        return not is_connect(self._frame.sparkSession)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the records, as they are read from files that Spark has written."""
        return pa.schema(
            [
                pa.field(each.name, arrow_type(each.dataType), nullable=each.nullable)
                for each in self._frame.schema
            ]
        )

    def root(self, checkpoints: str | None) -> str:
        """The given folder, else the checkpoints', else one for temporary files.

        Raises ConfigError if there is none, and other machines than this one write.
        """
        return self._folder or _root(self._frame.sparkSession, checkpoints, "from_spark")

    def write(self, folder: str) -> None:
        """Lets Spark write it. Raises StorageFailed, or JobCanceled after `cancel`."""
        session = self._frame.sparkSession
        counted = Observation()
        frame = self._frame.observe(counted, sql.count(sql.lit(1)).alias("rows"))
        try:
            with self._turn(session), access_to(session).named(self._names):
                frame.write.mode("overwrite").parquet(hadoop_path(folder))
        except Exception as error:  # Spark's, Py4J's, Connect's: they have no kind in common
            if self._cancelled:
                raise JobCanceled("the job ended while its DataFrame was written") from error
            raise StorageFailed(
                f"Spark could not write the DataFrame: {_first_line(error)}",
                where=folder,
                remedy="Run frame.count() to see the problem; Spark must be able to write to the "
                "folder.",
            ) from error
        written, found = int(counted.get["rows"]), rows_in(folder)
        if written != found:
            raise StorageFailed(
                f"Spark has written {written} rows, and {found} of them are found",
                where=folder,
                remedy="The folder has to be the same place for the driver and for all executors: "
                "name one in execution.checkpointing.dir, or with from_spark(…, folder=…).",
            )

    def cancel(self) -> None:
        self._cancelled = True
        access_to(self._frame.sparkSession).cancel(self._tag)

    @contextmanager
    def _turn(self, session: SparkSession) -> Generator[None]:
        """Lets frames take turns until cancelled; the session writes times as we read them."""
        while not _WRITING.acquire(timeout=_LOOK_AGAIN_S):
            if self._cancelled:
                raise JobCanceled("the job ended before its DataFrame was written")
        try:
            before = {key: session.conf.get(key) for key in _AS_WE_READ}
            for key, value in _AS_WE_READ.items():
                session.conf.set(key, value)
            try:
                yield
            finally:
                for key, value in before.items():
                    session.conf.set(key, str(value))
        finally:
            _WRITING.release()


class FrameOutput:
    """A folder that a job writes Parquet files into, to be read as a DataFrame.

    spark: the session; None takes the active one. folder: where; None makes one that is deleted
    when this process ends. resumed: whether an earlier run may have written there. Raises
    ConfigError for a folder that holds files of somebody else, and where there is no session.
    """

    def __init__(
        self, spark: object, folder: str | None, checkpoints: str | None, *, resumed: bool
    ) -> None:
        self._session = _session(spark)
        if folder is not None:
            self.folder = paths.absolute(folder)
            if not resumed and holds_files(self.folder):
                raise ConfigError(
                    "The folder holds other files, which would be read as well",
                    where=self.folder,
                    remedy="Name an empty folder.",
                )
            return
        if resumed:
            raise ConfigError(
                "A job that resumes from a checkpoint needs the folder of its output",
                where="to_spark",
                remedy="Name the folder of the first run: to_spark(…, folder=…), in both runs.",
            )
        root = _root(self._session, checkpoints, "to_spark")
        self.folder = paths.join(paths.absolute(root), f"tidegate-frame-{secrets.token_hex(8)}")
        atexit.register(_delete, self.folder)

    def read(self, schema: pa.Schema) -> DataFrame:
        columns = _columns(schema)
        if not columns.fields:
            return self._session.createDataFrame([], columns)
        return self._session.read.schema(columns).parquet(hadoop_path(self.folder))


def declared_schema(schema: object) -> pa.Schema:
    """Converts a schema of Arrow, of Spark, or in words (``"id bigint, name string"``) to Arrow.

    Raises ConfigError for anything else, for names that occur twice, and for a type that Parquet
    would not give back; GraphError for a type of Arrow that Spark lacks.
    """
    session = SparkSession.getActiveSession()
    if isinstance(schema, pa.Schema):
        _refuse_alike(_columns(spark_schema(schema)), session, "The schema", "to_spark")
        return schema
    if isinstance(schema, str):
        try:
            schema = spark_types.StructType.fromDDL(schema)
        except PySparkException as error:
            raise ConfigError(
                f"This is not a schema of Spark: {_first_line(error)}", where="to_spark"
            ) from error
    if not isinstance(schema, spark_types.StructType):
        raise ConfigError(
            f"{with_article(type(schema))} is not a schema",
            where="to_spark",
            remedy="Give a StructType, 'id bigint, name string' in words, or an Arrow schema.",
        )
    _refuse_alike(schema, session, "The schema", "to_spark")
    _refuse(schema, "to_spark")
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema])


_PLAIN: Final[tuple[tuple[type[spark_types.DataType], pa.DataType], ...]] = (
    (spark_types.BooleanType, pa.bool_()),
    (spark_types.ByteType, pa.int8()),
    (spark_types.ShortType, pa.int16()),
    (spark_types.IntegerType, pa.int32()),
    (spark_types.LongType, pa.int64()),
    (spark_types.FloatType, pa.float32()),
    (spark_types.DoubleType, pa.float64()),
    (spark_types.StringType, pa.string()),
    (spark_types.BinaryType, pa.binary()),
    (spark_types.DateType, pa.date32()),
    (spark_types.TimestampType, pa.timestamp("us", "UTC")),
    (spark_types.TimestampNTZType, pa.timestamp("us")),
    (spark_types.NullType, pa.null()),
)


def arrow_type(kind: spark_types.DataType) -> pa.DataType:
    if isinstance(kind, spark_types.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark_types.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    if isinstance(kind, spark_types.MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, spark_types.StructType):
        return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind])
    found = next((arrow for spark, arrow in _PLAIN if type(kind) is spark), None)
    assert found is not None, f"{kind} was refused"
    return found


def _columns(schema: pa.Schema) -> spark_types.StructType:
    return spark_types.StructType(
        [spark_types.StructField(field.name, spark_type(field.type)) for field in schema]
    )


def spark_type(kind: pa.DataType) -> spark_types.DataType:
    if pa.types.is_decimal(kind):
        return spark_types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return spark_types.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_list(kind):
        return spark_types.ArrayType(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return _columns(pa.schema(kind))
    return next(spark() for spark, arrow in _PLAIN if arrow == kind)


def hadoop_path(folder: str) -> str:
    """A folder as Spark names it: without a scheme it would be on the default file system."""
    if paths.is_local(folder):
        return f"file://{folder}"
    scheme, _, rest = folder.partition(":")
    return f"{'s3a' if scheme == 's3' else scheme}:{rest}"


def _check(frame: DataFrame) -> None:
    if frame.isStreaming:
        raise ConfigError(
            "A streaming DataFrame never ends, so it cannot be written first",
            where="from_spark",
            remedy="Read its input with another source (FileSource watches a folder).",
        )
    if not frame.columns:
        raise ConfigError("The DataFrame has no columns", where="from_spark")
    _refuse_alike(frame.schema, frame.sparkSession, "The DataFrame", "from_spark")
    _refuse(frame.schema, "from_spark")


def _refuse_alike(
    schema: spark_types.StructType, session: SparkSession | None, what: str, where: str
) -> None:
    """Raises ConfigError where columns, or fields of a struct, have one name for Spark."""
    sensitive = session is not None and session.conf.get("spark.sql.caseSensitive") == "true"
    if twice := list(_alike(schema, "", str if sensitive else str.lower)):
        raise ConfigError(
            f"{what} has several columns named {', '.join(map(repr, twice))}",
            where=where,
            remedy="Name them apart, a DataFrame's with toDF or alias.",
        )


def _alike(kind: spark_types.DataType, path: str, named: Callable[[str], str]) -> Iterator[str]:
    """Names that occur twice, by path. named: a name as Spark compares it."""
    match kind:
        case spark_types.StructType():
            names = [named(field.name) for field in kind]
            yield from sorted({f"{path}{name}" for name in names if names.count(name) > 1})
            for field in kind:
                yield from _alike(field.dataType, f"{path}{field.name}.", named)
        case spark_types.ArrayType():
            yield from _alike(kind.elementType, f"{path}element.", named)
        case spark_types.MapType():
            yield from _alike(kind.keyType, f"{path}key.", named)
            yield from _alike(kind.valueType, f"{path}value.", named)
        case _:
            pass


def _refuse(schema: spark_types.StructType, where: str) -> None:
    """Raises a ConfigError that names all columns which Parquet would not give back unchanged."""
    unfit = [f"'{name}' ({kind}: {remedy})" for name, kind, remedy in _unfit(schema, "")]
    if unfit:
        raise ConfigError(
            f"Columns have types that would not arrive as they are: {', '.join(unfit)}",
            where=where,
            remedy="Apply the remedy beside each column.",
        )


def _unfit(kind: spark_types.DataType, name: str) -> Iterator[tuple[str, str, str]]:
    """Name, type and remedy of the faulty columns; nested ones by path."""
    match kind:
        case spark_types.StructType() if name and not kind.fields:
            yield name, kind.simpleString(), "leave it out, it holds nothing"
        case spark_types.StructType():
            for field in kind:
                yield from _unfit(field.dataType, f"{name}.{field.name}" if name else field.name)
        case spark_types.ArrayType():
            yield from _unfit(kind.elementType, f"{name}.element")
        case spark_types.MapType():
            yield from _unfit(kind.keyType, f"{name}.key")
            yield from _unfit(kind.valueType, f"{name}.value")
        case spark_types.DecimalType():
            pass
        case _ if any(type(kind) is known for known, _ in _PLAIN):
            pass
        case spark_types.UserDefinedType():
            yield name, type(kind).__name__, _UNFIT["udt"]
        case _:
            text = kind.simpleString()
            begins = sorted((begin for begin in _UNFIT if text.startswith(begin)), key=len)
            yield name, text, _UNFIT[begins[-1]] if begins else "cast it to a string"


def _session(spark: object) -> SparkSession:
    session: Any = spark or SparkSession.getActiveSession()
    if not isinstance(session, SparkSession) and not is_connect(session):
        raise ConfigError(
            "There is no Spark session to read the output in",
            where="to_spark",
            remedy="Give one: to_spark(spark=…), or StreamExecutionEnvironment.on_spark(…).",
        )
    return session


def _root(session: SparkSession, checkpoints: str | None, call: str) -> str:
    if checkpoints is not None:
        return checkpoints
    if access_to(session).one_machine:
        return tempfile.gettempdir()
    raise ConfigError(
        "There is no folder that the driver and Spark's executors both reach",
        where=call,
        remedy=f"Name one with {call}(…, folder=…), or set execution.checkpointing.dir.",
    )


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _delete(folder: str) -> None:
    Stores().open(folder).delete_folder("")
