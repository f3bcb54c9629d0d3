"""Writing in transactions: one for the records between two barriers.

A producer of librdkafka has one transactional id for life, so each transaction has a producer of
its own. Opening one takes some 50 ms; the next is opened while the current one is written. At the
barrier the current one is flushed and left open: the committer ends it by its name, and the
producer is dropped, which sends nothing.

A transaction whose number is not above the last barrier's checkpoint is never begun; see
``transactions`` for why.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from confluent_kafka import KafkaError, KafkaException

from tidegate.api.rows.batches import as_rows
from tidegate.api.sink import Prepared
from tidegate.connectors.kafka.cluster import fault
from tidegate.connectors.kafka.transactions import (
    ONGOING,
    TransactionIds,
    TransactionName,
    Transactions,
    connection_settings,
    timeout_refused,
)
from tidegate.connectors.kafka.writer import Sending, flush, send_rest
from tidegate.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from tidegate.api.sink import WriterContext
    from tidegate.connectors.kafka.records import KafkaRecordSerializationSchema
    from tidegate.model.elements import Batch, RowBatch
    from tidegate.model.ids import CheckpointId

_OPEN_S: Final = 30.0
_ABORT_S: Final = 2.0
"""How long the loop may be held at the end, so that readers need not wait for the timeout."""


@dataclass(slots=True)
class Transaction:
    """A transaction with the producer that writes it; None once all has arrived."""

    number: int
    name: TransactionName
    sending: Sending | None


class TransactionalWriter:
    """Writes one subtask's transactions.

    prefix: of transactional ids. timeout_ms: after which the brokers abort a transaction.
    """

    def __init__(
        self,
        context: WriterContext,
        schema: KafkaRecordSerializationSchema,
        properties: Mapping[str, str],
        *,
        prefix: str,
        timeout_ms: int,
    ) -> None:
        self._context = context
        self._schema = schema
        self._properties = properties
        self._timeout_ms = timeout_ms
        self._where = f"operator '{context.operator}'"
        self._ids = TransactionIds.of_writer(prefix, context)
        settings = connection_settings(properties, self._where)
        self._transactions = Transactions(settings, self._where)
        self._restored = self._barrier = self._number = int(context.restored_checkpoint or 0)
        self._current: Transaction | None = None
        self._next: Transaction | None = None
        self._opened: asyncio.Future[None] | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._cleared = False
        self._open_next()

    def write(self, batch: Batch) -> Awaitable[object] | None:
        rows = as_rows(batch)
        if not len(rows):
            return None
        sending = self._begun()
        if sending is None:
            return self._write_later(rows)
        taken = sending.send(rows, 0, self._schema)
        if taken == len(rows):
            return None
        return send_rest(sending, rows, taken, self._schema, self._context)

    async def _write_later(self, rows: RowBatch) -> None:
        while (sending := self._begun()) is None:
            await asyncio.shield(cast("asyncio.Future[None]", self._awaited))
        await send_rest(sending, rows, 0, self._schema, self._context)

    @property
    def _awaited(self) -> asyncio.Future[None] | None:
        """Work that must finish before a record can be written; None if there is none."""
        if self._flushed is not None and not self._flushed.done():
            return self._flushed  # or records could be in sight in another order
        return self._opened if self._current is None and self._next is None else None

    def _begun(self) -> Sending | None:
        """Producer of the current transaction, started if needed; None if it is not ready."""
        if self._next is not None and self._next.number <= self._barrier:
            self._next = None
            self._open_next()
        if self._awaited is not None:
            return None
        if self._current is None:
            self._current, self._next = self._next, None
            self._open_next()
            current = cast("Transaction", self._current)
            cast("Sending", current.sending).producer.begin_transaction()
        return cast("Transaction", self._current).sending

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        transaction, self._current = self._current, None
        if transaction is None:
            return Prepared()
        loop = asyncio.get_running_loop()
        self._flushed, sealed = loop.create_future(), loop.create_future()
        self._context.start(self._seal(transaction, self._flushed, sealed))
        return Prepared([transaction.name.to_bytes()], sealed)

    async def _seal(
        self,
        transaction: Transaction,
        flushed: asyncio.Future[None],
        sealed: asyncio.Future[None],
    ) -> None:
        await flush(cast("Sending", transaction.sending), self._context)
        flushed.set_result(None)
        await self._context.run_blocking(lambda: self._check_open(transaction))
        sealed.set_result(None)

    def _check_open(self, transaction: Transaction) -> None:
        # On the pool. A checkpoint that named a lost transaction would complete, and its commit
        # would fail for ever; so rather no checkpoint.
        transaction.sending = None
        found, state = self._transactions.name_of(transaction.name.transactional_id)
        if (found, state) != (transaction.name, ONGOING):
            raise StorageFailed(
                f"The transaction of '{found.transactional_id}' is not open any more: it is "
                f"{state}, and was taken over or was open for longer than its timeout",
                where=self._where,
                remedy="Use a prefix of transactional ids for one sink only; let "
                "transaction.timeout.ms cover the time between two checkpoints.",
            )

    def snapshot(self, checkpoint: CheckpointId) -> Sequence[bytes]:
        # No state: transactions behind this barrier have numbers above the checkpoint's, so a
        # restore can tell them by their names.
        self._barrier = int(checkpoint)
        return ()

    def close(self) -> None:
        # An open transaction holds up all who read committed records, until it times out.
        if self._current is not None and self._current.sending is not None:
            with contextlib.suppress(KafkaException):
                self._current.sending.producer.abort_transaction(_ABORT_S)
        self._current = self._next = None
        self._transactions.close()

    def _open_next(self) -> None:
        self._number = max(self._number, self._barrier) + 1
        self._opened = asyncio.get_running_loop().create_future()
        self._context.start(self._open(self._number, self._opened))

    async def _open(self, number: int, opened: asyncio.Future[None]) -> None:
        if not self._cleared:
            await self._context.run_blocking(self._clear)
            self._cleared = True
        made = await self._context.run_blocking(lambda: self._opened_transaction(number))
        self._next = cast("Transaction", made)
        opened.set_result(None)

    def _clear(self) -> None:
        ids = self._transactions.open_ids()
        for each in self._ids.left_behind(ids, self._context.parallelism, self._restored):
            self._transactions.abort_all(each, self._timeout_ms)

    def _opened_transaction(self, number: int) -> Transaction:
        own = self._ids.of(number)
        sending = Sending({**self._properties, "transactional.id": own}, self._where)
        try:
            # Without a connection the next call would look for one each half a second only.
            sending.producer.list_topics(self._schema.topic, _OPEN_S)
            sending.producer.init_transactions(_OPEN_S)
        except KafkaException as error:
            if fault(error).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise timeout_refused(self._timeout_ms, self._where) from error
            raise sending.failure(fault(error)) from error
        name, _ = self._transactions.name_of(own)
        return Transaction(number, name, sending)
