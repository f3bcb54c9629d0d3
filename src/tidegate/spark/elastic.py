"""The Spark runtime: every slot is a Spark job of its own with one task.

A dead slot takes nothing with it, even where Spark gives a task a single try; slots come and go
one by one. A thread in the driver waits for each job, since Spark's actions block.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidegate.clock import SystemClock
from tidegate.config import execution
from tidegate.config.execution import BatchShuffleMode
from tidegate.config.log import process_log
from tidegate.config.recovery import RESTART_STRATEGY
from tidegate.driver.address import LOCALHOST, DriverAddress, told_address
from tidegate.driver.thread import start_driver
from tidegate.errors import ConfigError, DriverUnreachable, NodeUnfit, SlotLost
from tidegate.graph.runtime import refuse_savepoint_at_end
from tidegate.model.addresses import leaves_machine
from tidegate.rest.serve import archive, rest_server
from tidegate.slot.loop.beside import DaemonThreads
from tidegate.spark.access.access import (
    SLOT_TAG,
    JobNames,
    access_to,
    check_cores,
    tell_of_plain_rpc,
)
from tidegate.spark.access.asking import Question
from tidegate.spark.access.python_files import refuse_changed_modules
from tidegate.spark.batch.client import start_batch
from tidegate.spark.batch.final_snapshot import savepoint_in
from tidegate.spark.batch.listening import DriverPlace
from tidegate.spark.session import (
    check_can_shuffle,
    gone,
    has_gone,
    lost,
    session_for,
)
from tidegate.spark.shipping import Shipment, ship
from tidegate.spark.slot_task import (
    MISPLACED,
    OUTCOME_SCHEMA,
    REPLACED,
    UNREACHABLE,
    SlotTask,
    slot_function,
)
from tidegate.transport.security import LinkSecurity

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from tidegate.api.job import JobClient
    from tidegate.config.configuration import Configuration
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation
    from tidegate.spark.access.access import SparkAccess
    from tidegate.spark.batch.final_snapshot import Ending

CLOSE_TIMEOUT_S = 5.0
"""How long slots may take to end by themselves before their Spark jobs are cancelled."""

CANCELLED_TIMEOUT_S = 15.0
"""How long Spark may take to end a job that was cancelled."""

_CANCELLED = ("[SPARK_JOB_CANCELLED]", "[OPERATION_CANCELED]")
_ANEW = (
    "The job needs a new session: start the program again, with `tidegate run --from latest` to go "
    "on from the newest checkpoint."
)


class SparkRuntime:
    """Runs jobs in a Spark session, in elastic mode.

    ending: snapshot that batches end with; None for a savepoint, if their settings ask for one.
    """

    def __init__(
        self,
        configuration: Configuration,
        spark: object | None = None,
        *,
        ending: Ending | None = None,
    ) -> None:
        self._configuration = configuration
        self._spark = spark
        self._ending = ending

    @property
    def _shuffles(self) -> bool:
        mode = self._configuration.get(execution.BATCH_SHUFFLE_MODE)
        return mode is BatchShuffleMode.ALL_EXCHANGES_BLOCKING

    def submit(self, graph: JobGraph) -> JobClient:
        """Start a job; returns once its driver leads it.

        Raises what stands in its way: ConfigError, StorageFailed, RestoreRefused.
        """
        slots = graph.topology.slots_needed()
        shuffles = graph.settings.slot.final_only and self._shuffles
        if shuffles:
            check_can_shuffle()
        else:
            refuse_savepoint_at_end(self._configuration)
        access = access_to(session_for(self._spark, None if shuffles else slots))
        if not shuffles:
            check_cores(access, slots)
            access.keep_slots_at_signals(process_log().bind(job=graph.name))
        for path in self._configuration.get(execution.PYTHON_FILES):
            if access.one_machine:
                refuse_changed_modules(path, access.application)
            else:
                access.give_python_file(path)
        shipment = ship(access) if self._configuration.get(execution.SHIP) else None
        address = self._address(access, must=not shuffles)
        if leaves_machine(address.bind, address.announce):
            tell_of_plain_rpc(access, process_log().bind(job=graph.name))
        if shuffles:
            ending = self._ending or self._savepoint_at_end()
            # Micro-batches, which name their ending, would say so again with each.
            restarts = self._configuration.get(RESTART_STRATEGY) not in (None, "disable")
            if restarts and self._ending is None:
                process_log().bind(job=graph.name).warning(
                    "restart-strategy.type is not heeded in a batch over Spark's shuffle: Spark "
                    "runs a task again, spark.task.maxFailures times in all"
                )
            place = DriverPlace(address.bind, address.announce, address.ports, access.page)
            return start_batch(graph, access, place, ending, shipment)
        security = LinkSecurity(graph.settings.links, address.bind, announce=address.announce)
        ports = address.ports or graph.settings.slot.port_range
        network = security.network(ports=ports)
        provider = ElasticProvider(access, graph.name, security, shipment)
        secret = security.secret
        rest, kept = rest_server(graph), archive(graph)
        return start_driver(graph, provider, network, secret=secret, rest=rest, archive=kept)

    def _savepoint_at_end(self) -> Ending | None:
        option = execution.END_WITH_SAVEPOINT
        folder = self._configuration.get(option)
        if folder is not None and not folder.strip():
            raise ConfigError(
                "The folder of the savepoint at the end of the batch has no name",
                where=self._configuration.where_set(option) or option.key,
                remedy="Name a folder, such as savepoints/, or leave the option out.",
            )
        return None if folder is None else savepoint_in(folder)

    def _address(self, access: SparkAccess, *, must: bool) -> DriverAddress:
        """Where the driver listens. must: there is no job without; a batch only tells less."""

        def found() -> DriverAddress:
            try:
                return access.driver_address()
            except ConfigError:
                if must:
                    raise
                return DriverAddress(LOCALHOST, LOCALHOST)

        return told_address(self._configuration, found, one_machine=access.one_machine)


class ElasticProvider:
    """The `SlotProvider` that submits a Spark job a slot."""

    tells_ends = False

    def __init__(
        self,
        access: SparkAccess,
        job_name: str,
        security: LinkSecurity,
        shipment: Shipment | None = None,
    ) -> None:
        self._shipment = shipment
        self._access = access
        self._job_name = job_name
        self._security = security
        self._tag = f"tidegate-{secrets.token_hex(6)}"
        self._invitation: SlotInvitation | None = None
        self._failed: Callable[[str, TidegateError, bool], None] | None = None
        self._ended: Callable[[str], None] | None = None
        self._threads: list[threading.Thread] = []
        self._numbers = itertools.count(1)
        self._starts = DaemonThreads(1)
        self._released = threading.Event()
        self._planning = threading.Lock()
        self._planned: DataFrame | None = None
        self._question = Question()

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        near = os.getpid() if self._access.one_machine else None
        self._invitation = replace(invitation, driver_process=near)
        self._failed = failed
        self._ended = ended

    def request(self, count: int) -> None:
        for _ in range(count):
            request = f"{self._tag}-{next(self._numbers)}"
            self._starts.run(partial(self._begin, request))

    def _begin(self, request: str) -> None:
        from pyspark import InheritableThread

        if self._released.is_set():
            return
        session = self._access.session
        thread = InheritableThread(target=self._run, args=(request,), session=session)
        thread.daemon = True
        try:
            thread.start()  # which asks Spark's JVM for this thread's properties
        except Exception as error:
            self._slot_failed(request, error)
        else:
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]

    def release(self) -> None:
        self._released.set()

    async def close(self) -> None:
        self._released.set()
        self._starts.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._join, CLOSE_TIMEOUT_S)
        left = any(thread.is_alive() for thread in self._threads)
        if left and await loop.run_in_executor(None, self._access.cancel, self._tag):
            await loop.run_in_executor(None, self._join, CANCELLED_TIMEOUT_S)

    async def hint(self) -> str:
        """Reason why slots don't come, as of the last time when Spark could tell."""
        if self._released.is_set():
            return self._question.answer
        asked = sum(thread.is_alive() for thread in self._threads)
        return await self._question.asked(lambda: self._access.waiting(self._tag, asked))

    def _join(self, timeout_s: float) -> None:
        clock = SystemClock()
        deadline_s = clock.precise_s() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - clock.precise_s()))

    def _run(self, request: str) -> None:
        description = f"tidegate slot of '{self._job_name}'"
        try:
            with self._access.named(JobNames((self._tag, SLOT_TAG), description, request)):
                with self._planning:
                    slot = self._plan(request)
                (row,) = slot.collect()
        except Exception as error:
            self._slot_failed(request, error)
        else:
            # Report normal ends too: the link may have broken before the slot's offer arrived.
            self._slot_ended(request, str(row[0]))

    def _plan(self, request: str) -> DataFrame:
        """Spark's plan of a slot: the same for all slots, unless each has keys of its own."""
        access = self._access
        if self._planned is not None and self._security.shared and access.tells_requests:
            return self._planned
        invitation = self._invitation
        assert invitation is not None, "started before anything is requested"
        path = tuple(sys.path) if access.one_machine else ()
        task = SlotTask(self._security.invite(invitation, request), path)
        with access.python():
            one, function = access.session.range(0, 1, 1, 1), slot_function(task)
            if self._shipment is not None:
                function = self._shipment.carried(function)
            self._planned = one.mapInArrow(function, OUTCOME_SCHEMA)
        return self._planned

    def _slot_ended(self, request: str, outcome: str) -> None:
        if outcome.startswith(UNREACHABLE):
            error = DriverUnreachable(
                outcome.removeprefix(UNREACHABLE), remedy=self._access.when_unreachable
            )
            self._missed(request, error, final=True)
        elif outcome.startswith(MISPLACED):
            what, where, remedy = json.loads(outcome.removeprefix(MISPLACED))
            self._missed(request, ConfigError(what, where=where, remedy=remedy), final=True)
        elif outcome == REPLACED:
            self._missed(request, SlotLost("Spark ran the slot's task a second time"))
        else:
            self._missed(request, SlotLost(f"the slot has ended: {outcome}"))

    def _slot_failed(self, request: str, error: Exception) -> None:
        text = str(error)
        if any(sign in text for sign in _CANCELLED):
            if not self._released.is_set() and self._ended is not None:
                self._ended("Spark's job was cancelled from outside")
        elif has_gone(self._access, error):
            self._missed(request, gone(_ANEW), final=True)
        else:
            ended = lost("Spark ended the slot's task", text)
            self._missed(request, ended, final=isinstance(ended, NodeUnfit))

    def _missed(self, request: str, error: TidegateError, *, final: bool = False) -> None:
        if not self._released.is_set() and self._failed is not None:
            self._failed(request, error, final)
