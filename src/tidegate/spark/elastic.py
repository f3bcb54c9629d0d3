"""The Spark runtime: every slot is a Spark job of its own with one task.

A dead slot takes nothing with it, even where Spark gives a task a single try; slots come and go
one by one. A thread in the driver waits for each job, since Spark's actions block.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from tidegate.config import execution
from tidegate.config.execution import BatchShuffleMode
from tidegate.config.log import process_log
from tidegate.driver.thread import start_driver
from tidegate.errors import SlotLost
from tidegate.rest.serve import archive, rest_server
from tidegate.spark.batch.client import start_batch
from tidegate.spark.batch.listening import DriverPlace
from tidegate.spark.interrupts import SLOT_TAG, keep_slots_at_signals
from tidegate.spark.session import (
    check_cores,
    driver_address,
    is_local,
    lacks_tidegate,
    look,
    lost,
    session_for,
    ship_python_files,
    stages_page,
    tell_of_plain_rpc,
    workers_python,
)
from tidegate.spark.shipping import Shipment, ship
from tidegate.spark.slot_task import (
    OUTCOME_SCHEMA,
    REPLACED,
    REQUEST_PROPERTY,
    SlotTask,
    slot_function,
)
from tidegate.transport.security import LinkSecurity, is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tidegate.api.job import JobClient
    from tidegate.config.configuration import Configuration
    from tidegate.errors import TidegateError
    from tidegate.graph.job_graph import JobGraph
    from tidegate.model.control import SlotInvitation

TASK_TRIES = 4
"""How often Spark runs a task of a batch that dies; its own number for clusters."""

CLOSE_TIMEOUT_S = 5.0
"""How long slots may take to end by themselves before their Spark jobs are cancelled."""

CANCELLED_TIMEOUT_S = 15.0
"""How long Spark may take to end a job that was cancelled."""

_ENDED_FROM_OUTSIDE = ("cancelled", "canceled", "SparkContext was shut down", "was stopped")


class SparkRuntime:
    """Runs jobs in a Spark session, in elastic mode."""

    def __init__(self, configuration: Configuration, spark: object | None = None) -> None:
        self._configuration = configuration
        self._spark = spark

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
        spark = session_for(self._spark, slots, TASK_TRIES if shuffles else 1)
        if not shuffles:
            check_cores(spark, slots)
            keep_slots_at_signals(spark.sparkContext, process_log().bind(job=graph.name))
        if not is_local(spark):
            ship_python_files(spark, self._configuration.get(execution.PYTHON_FILES))
        ships = self._configuration.get(execution.SHIP)
        shipment = ship(spark.sparkContext) if ships else None
        address = driver_address(spark)
        if not is_loopback(address.bind):
            tell_of_plain_rpc(spark, process_log().bind(job=graph.name))
        if shuffles:
            savepoints = self._configuration.get(execution.END_WITH_SAVEPOINT)
            place = DriverPlace(address.bind, address.announce, stages_page(spark))
            return start_batch(graph, spark, place, savepoints, shipment)
        security = LinkSecurity(graph.settings.links, address.bind)
        network = security.network(announce=address.announce, ports=graph.settings.slot.port_range)
        provider = ElasticProvider(spark, graph.name, security, shipment)
        secret = security.secret
        rest, kept = rest_server(graph), archive(graph)
        return start_driver(graph, provider, network, secret=secret, rest=rest, archive=kept)


class ElasticProvider:
    """The `SlotProvider` that submits a Spark job a slot."""

    def __init__(
        self,
        spark: SparkSession,
        job_name: str,
        security: LinkSecurity,
        shipment: Shipment | None = None,
    ) -> None:
        self._shipment = shipment
        self._spark = spark
        self._job_name = job_name
        self._security = security
        self._tag = f"tidegate-{secrets.token_hex(6)}"
        self._invitation: SlotInvitation | None = None
        self._failed: Callable[[str, TidegateError, bool], None] | None = None
        self._ended: Callable[[str], None] | None = None
        self._threads: list[threading.Thread] = []
        self._released = threading.Event()
        self._planning = threading.Lock()
        self._planned: DataFrame | None = None
        self._waiting = ""

    def start(
        self,
        invitation: SlotInvitation,
        failed: Callable[[str, TidegateError, bool], None],
        ended: Callable[[str], None],
    ) -> None:
        near = os.getpid() if is_local(self._spark) else None
        self._invitation = replace(invitation, driver_process=near)
        self._failed = failed
        self._ended = ended

    def request(self, count: int) -> None:
        from pyspark import InheritableThread

        for _ in range(count):
            request = f"{self._tag}-{len(self._threads)}"
            thread = InheritableThread(target=self._run, args=(request,), session=self._spark)
            thread.daemon = True
            self._threads.append(thread)
            thread.start()

    def release(self) -> None:
        self._released.set()

    async def close(self) -> None:
        self._released.set()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._join, CLOSE_TIMEOUT_S)
        if any(thread.is_alive() for thread in self._threads):
            await loop.run_in_executor(None, self._cancel)
            await loop.run_in_executor(None, self._join, CANCELLED_TIMEOUT_S)

    @property
    def hint(self) -> str:
        """Reason why slots don't come, as of the last time when Spark could tell."""
        if not self._released.is_set():
            asked = sum(thread.is_alive() for thread in self._threads)
            with contextlib.suppress(Py4JError, AttributeError, OSError):  # Spark is gone
                self._waiting = str(look(self._spark, self._tag, asked))
        return self._waiting

    def _join(self, timeout_s: float) -> None:
        for thread in self._threads:
            thread.join(timeout_s)

    def _cancel(self) -> None:
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, request: str) -> None:
        context = self._spark.sparkContext
        try:
            context.addJobTag(self._tag)
            context.addJobTag(SLOT_TAG)
            context.setJobDescription(f"tidegate slot of '{self._job_name}'")
            context.setLocalProperty(REQUEST_PROPERTY, request)
            with self._planning:
                slot = self._plan(request)
            (outcome,) = slot.collect()
        except Exception as error:
            self._slot_failed(request, error)
        else:
            # Report normal ends too: the link may have broken before the slot's offer arrived.
            second = "Spark ran the slot's task a second time"
            text = second if outcome[0] == REPLACED else f"the slot has ended: {outcome[0]}"
            self._slot_failed(request, SlotLost(text))

    def _plan(self, request: str) -> DataFrame:
        """Spark's plan of a slot: the same for all slots, unless each has keys of its own."""
        if self._planned is not None and self._security.shared:
            return self._planned
        invitation = self._invitation
        assert invitation is not None, "started before anything is requested"
        path = tuple(sys.path) if is_local(self._spark) else ()
        task = SlotTask(self._security.invite(invitation, request), path)
        with workers_python(self._spark):
            one, function = self._spark.range(0, 1, 1, 1), slot_function(task)
            if self._shipment is not None:
                function = self._shipment.carried(function)
            self._planned = one.mapInArrow(function, OUTCOME_SCHEMA)
        return self._planned

    def _slot_failed(self, request: str, error: Exception) -> None:
        if self._released.is_set():
            return
        text = str(error)
        if any(sign in text for sign in _ENDED_FROM_OUTSIDE) and self._ended is not None:
            self._ended("Spark's job was cancelled, or its session stopped, from outside")
        elif self._failed is not None:
            error = lost("Spark ended the slot's task", text)
            self._failed(request, error, lacks_tidegate(text))
