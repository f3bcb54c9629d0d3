"""Writing in transactions: one for the records between two barriers.

A producer of librdkafka has one transactional id for life, so each transaction has a producer of
its own. Opening one takes some 20 ms: it is opened while the one before it is written, and more of
them where barriers come sooner than that. At the barrier the current one is flushed and left open:
the committer ends it by its name, and the producer is dropped, which sends nothing.

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
_AHEAD_MAX: Final = 8
_QUICK_START: Final = {"reconnect.backoff.ms": "10"}
"""A new client learns a server's name from its first answer and connects anew, after that time."""

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
        self._where = f"operator '{context.operator}'"
        # Calls of one connection take turns, and a barrier does not wait for what is opened ahead:
        # openings have another one.
        settings = connection_settings(properties, self._where)
        self._transactions = Transactions(settings, self._where)
        self._barrier = self._number = int(context.restored_checkpoint or 0)
        self._current: Transaction | None = None
        self._flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushed.set_result(None)
        self._openings = Openings(
            context,
            properties,
            schema.topic,
            prefix=prefix,
            timeout_ms=timeout_ms,
            where=self._where,
        )
        self._next()

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
            if self._flushing:
                await asyncio.shield(self._flushed)
            else:
                self._openings.late()
                await asyncio.shield(self._next())
        await send_rest(sending, rows, 0, self._schema, self._context)

    @property
    def _flushing(self) -> bool:
        """True if records ahead of the last barrier may not have arrived yet."""
        return not self._flushed.done()

    def _begun(self) -> Sending | None:
        """Producer of the current transaction, started if needed; None if it is not ready."""
        # Records behind a barrier wait for those ahead of it, or they could be seen in another
        # order.
        if self._flushing or (self._current is None and not self._next().done()):
            return None
        if self._current is None:
            transaction = self._openings.take(self._next_number)
            sending = cast("Sending", transaction.sending)
            try:
                sending.producer.begin_transaction()
            except KafkaException as error:
                raise sending.failure(fault(error)) from error
            self._current, self._number = transaction, transaction.number
            self._next()
        return self._current.sending

    @property
    def _next_number(self) -> int:
        return max(self._barrier, self._number) + 1

    def _next(self) -> asyncio.Future[Transaction]:
        """Opening of the next transaction, which starts now if it has not yet."""
        return self._openings.next(self._next_number)

    def prepare_commit(self, *, end_of_input: bool) -> Prepared:
        transaction, self._current = self._current, None
        if transaction is None:
            # A checkpoint hides lower numbers from the next attempt, so none completes before what
            # has them is aborted.
            return Prepared(durable=self._openings.clearing)
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
        name = transaction.name
        found, state = self._transactions.name_of(
            name.transactional_id, coordinator=name.coordinator
        )
        if (found, state) != (name, ONGOING):
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
        self._current = None
        self._transactions.close()
        self._openings.close()


class Openings:
    """Transactions of one subtask that are open, or being opened, and not begun yet.

    Whatever earlier attempts have left open is aborted before the first is opened. topic: which is
    written to, None for any. prefix: of transactional ids. timeout_ms: after which the brokers
    abort a transaction. where: for messages.
    """

    def __init__(
        self,
        context: WriterContext,
        properties: Mapping[str, str],
        topic: str | None,
        *,
        prefix: str,
        timeout_ms: int,
        where: str,
    ) -> None:
        self._context = context
        self._properties = properties
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._where = where
        self._ids = TransactionIds.of_writer(prefix, context)
        self._transactions = Transactions(connection_settings(properties, where), where)
        self._opened: dict[int, asyncio.Future[Transaction]] = {}
        self._ahead = 1
        self._cleared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.start(self._clear_first())

    def next(self, first: int) -> asyncio.Future[Transaction]:
        """Opening of the transaction with that number; it starts now if it has not yet.

        Those after it are opened too, so many ahead as were too late before. What has a lower
        number is dropped: a barrier without records has passed it.
        """
        if passed := [number for number in self._opened if number < first]:
            for number in passed:
                del self._opened[number]
            self._ahead = 1
        for number in range(first, first + self._ahead):
            if number not in self._opened:
                self._opened[number] = asyncio.get_running_loop().create_future()
                self._context.start(self._open(number, self._opened[number]))
        return self._opened[first]

    @property
    def clearing(self) -> Awaitable[object] | None:
        """End of the abort of what earlier attempts have left open; None once that is over."""
        return None if self._cleared.done() else asyncio.shield(self._cleared)

    def late(self) -> None:
        """Records wait for an opening: one more is opened ahead from now on."""
        self._ahead = min(self._ahead + 1, _AHEAD_MAX)

    def take(self, number: int) -> Transaction:
        """Hands over a transaction that is open."""
        return self._opened.pop(number).result()

    def close(self) -> None:
        self._opened.clear()
        self._transactions.close()

    async def _open(self, number: int, opened: asyncio.Future[Transaction]) -> None:
        await asyncio.shield(self._cleared)
        made = await self._context.run_blocking(lambda: self._opened_transaction(number))
        opened.set_result(cast("Transaction", made))

    async def _clear_first(self) -> None:
        await self._context.run_blocking(self._clear)
        self._cleared.set_result(None)

    def _clear(self) -> None:
        ids = self._transactions.open_ids()
        restored = int(self._context.restored_checkpoint or 0)
        for each in self._ids.left_behind(ids, self._context.parallelism, restored):
            self._transactions.abort_all(each, self._timeout_ms)

    def _opened_transaction(self, number: int) -> Transaction:
        own = self._ids.of(number)
        sending = Sending(
            {**_QUICK_START, **self._properties, "transactional.id": own}, self._where
        )
        try:
            # Without a connection the call after these would look for one each half a second
            # only. The first answer names the server, which ends the connection that it came by.
            sending.producer.list_topics(self._topic, _OPEN_S)
            sending.producer.list_topics(self._topic, _OPEN_S)
            sending.producer.init_transactions(_OPEN_S)
        except KafkaException as error:
            if fault(error).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise timeout_refused(self._timeout_ms, self._where) from error
            raise sending.failure(fault(error)) from error
        name, _ = self._transactions.name_of(own)
        return Transaction(number, name, sending)
