"""Checks that Spark encrypts what it ships to executors, such as the keys of our links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import structlog
    from pyspark.sql import SparkSession

_ENCRYPTS: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")


def tell_of_plain_rpc(spark: SparkSession, log: structlog.typing.FilteringBoundLogger) -> None:
    """Warns if an eavesdropper between driver and executors could read the keys."""
    conf = spark.sparkContext.getConf()
    if not any((conf.get(key) or "false").lower() == "true" for key in _ENCRYPTS):
        log.warning(
            "Spark's own connections are not encrypted, and carry the keys of the job's links; "
            "set spark.network.crypto.enabled with spark.authenticate if others can read that "
            "traffic"
        )
