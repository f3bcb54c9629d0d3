"""Sends records to librdkafka's producer, and checks that they arrive.

``Sending`` is one producer with what has gone wrong with its records; ``PlainWriter`` is the writer
that needs no transactions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.api.rows.batches import as_rows, shown
from tidegate.api.sink import Prepared
from tidegate.connectors.kafka.cluster import fault, refused_properties
from tidegate.errors import BadRecord, StorageFailed
from tidegate.model.elements import MIN_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from confluent_kafka import Message

    from tidegate.api.sink import WriterContext
    from tidegate.connectors.kafka.records import KafkaRecord, KafkaRecordSerializationSchema
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.model.ids import CheckpointId

_WAIT_S: Final = 0.1
"""How long one call on the pool waits; between two of them a subtask can be ended."""


class Sending:
    """A producer, and the fate of its records.

    where: for messages.
    """

    def __init__(self, properties: Mapping[str, str], where: str) -> None:
        self._where = where
        failed = self._failed = list[KafkaError]()

        # Keep no reference to the producer here: it ends with its last reference.
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            self.producer = Producer(
                {**properties, "on_delivery": delivered, "delivery.report.only.error": True}
            )
        except KafkaException as error:
            raise refused_properties(error, where) from error

    def send(self, rows: RowBatch, first: int, schema: KafkaRecordSerializationSchema) -> int:
        """Sends rows from one on, until the producer is full; returns the first one left.

        Raises BadRecord for a row that cannot become a record, StorageFailed for what has failed.
        """
        produce = self.producer.produce
        times = rows.timestamps_ms
        for index in range(first, len(rows)):
            record = self._record(rows.values[index], schema)
            ms = MIN_TIMESTAMP_MS if times is None else times[index]
            try:
                if ms >= 0:
                    produce(record.topic, record.value, record.key, timestamp=ms)
                elif ms == MIN_TIMESTAMP_MS:
                    produce(record.topic, record.value, record.key)
                else:
                    raise self._before_1970(rows.values[index], ms)
            except BufferError:
                return index
            except KafkaException as error:
                raise self.failure(fault(error)) from error
        self.look()
        return len(rows)

    def look(self, wait_s: float = 0) -> None:
        """Handles reports on records. Raises StorageFailed if one was lost."""
        try:
            self.producer.poll(wait_s)
        except KafkaException as error:
            raise self.failure(fault(error)) from error
        self._raise_failed()

    def flushed(self, wait_s: float) -> bool:
        """True if all records have arrived. Blocking. Raises StorageFailed if one was lost."""
        try:
            left = self.producer.flush(wait_s)
        except KafkaException as error:
            raise self.failure(fault(error)) from error
        self._raise_failed()
        return not left

    def _raise_failed(self) -> None:
        if self._failed:
            raise self.failure(self._failed[0])

    def failure(self, error: KafkaError) -> StorageFailed:
        return StorageFailed(
            f"Records could not be written to Kafka: {error.str()}",
            where=self._where,
            remedy="If it was fenced, another job or sink uses the same prefix of transactional "
            "ids. Else check topics, servers, and what this user may write.",
        )

    def _before_1970(self, element: object, ms: int) -> BadRecord:
        return BadRecord(
            f"The event time of an element is {ms} ms, and records of Kafka have none before 1970",
            where=f"{self._where}, element {shown(element)}",
            remedy="Assign another event time in front of the sink, or filter such elements.",
        )

    def _record(self, element: object, schema: KafkaRecordSerializationSchema) -> KafkaRecord:
        try:
            return schema.serialize(element)
        except Exception as error:
            part = " ".join(getattr(error, "__notes__", []))
            raise BadRecord(
                f"An element cannot become a record of Kafka: {type(error).__name__}: {error}",
                where=f"{self._where}, {part}",
                remedy="Use a schema that fits the elements, or map them to its type.",
            ) from error


async def send_rest(
    sending: Sending,
    rows: RowBatch,
    first: int,
    schema: KafkaRecordSerializationSchema,
    context: WriterContext,
) -> None:
    """Sends the rest of some rows as the producer takes them."""
    while (first := sending.send(rows, first, schema)) < len(rows):
        await context.run_blocking(lambda: sending.look(_WAIT_S))


async def flush(sending: Sending, context: WriterContext) -> None:
    """Waits for all records. librdkafka gives up by itself: see message.timeout.ms."""
    while not await context.run_blocking(lambda: sending.flushed(_WAIT_S)):
        pass


class PlainWriter:
    """Writes without transactions.

    flushes: a checkpoint waits until all records ahead of its barrier have arrived; those behind it
    wait too, or there would be no end to it.
    """

    def __init__(
        self,
        context: WriterContext,
        schema: KafkaRecordSerializationSchema,
        properties: Mapping[str, str],
        *,
        flushes: bool,
    ) -> None:
        self._context = context
        self._schema = schema
        self._flushes = flushes
        self._flushed: asyncio.Future[None] | None = None
        self._sending = Sending(properties, f"operator '{context.operator}'")

    def write(self, batch: Batch) -> Awaitable[object] | None:
        rows = as_rows(batch)
        if self._flushed is not None and not self._flushed.done():
            return self._write_behind(self._flushed, rows)
        taken = self._sending.send(rows, 0, self._schema)
        if taken == len(rows):
            return None
        return send_rest(self._sending, rows, taken, self._schema, self._context)

    async def _write_behind(self, flushed: asyncio.Future[None], rows: RowBatch) -> None:
        await asyncio.shield(flushed)
        await send_rest(self._sending, rows, 0, self._schema, self._context)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        if not self._flushes and not end_of_input:
            return Prepared()
        self._flushed = asyncio.get_running_loop().create_future()
        self._context.start(self._flush(self._flushed))
        return Prepared(durable=self._flushed)

    async def _flush(self, flushed: asyncio.Future[None]) -> None:
        await flush(self._sending, self._context)
        flushed.set_result(None)

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        return ()

    def close(self) -> None:
        del self._sending
