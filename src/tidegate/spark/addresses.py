"""Finds the address of the driver that executors can reach, as Spark knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCALHOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """bind: the address to listen on. announce: the one that executors dial."""

    bind: str
    announce: str


def driver_address(spark: SparkSession) -> DriverAddress:
    """Address at which this session's executors find the driver.

    A local master's executors are on this machine. Elsewhere it is ``spark.driver.host``, to which
    the executors have connected already, bound at ``spark.driver.bindAddress`` where that is set.
    """
    if is_local(spark):
        return DriverAddress(LOCALHOST, LOCALHOST)
    conf = spark.sparkContext.getConf()
    announce = conf.get("spark.driver.host") or LOCALHOST
    bind = conf.get("spark.driver.bindAddress") or announce
    return DriverAddress(bind, announce)


def is_local(spark: SparkSession) -> bool:
    """True if driver and executors are on one machine."""
    return (spark.sparkContext.master or "").startswith("local")
