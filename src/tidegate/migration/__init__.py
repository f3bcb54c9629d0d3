"""Snapshots of Apache Flink become savepoints of ours, or canonical savepoints of Flink.

Flink's bytes are read by the package `flinkformat`. Read from the bottom up: `types` and `keys`
(what Flink's serializers are here), `pyflink` (what PyFlink puts into them), `translations` (one
state), `declarations` (states that a PyFlink job has to declare), `taken` (an operator on its way),
and `from_flink` (all of it). `rewrite` goes from Flink to Flink.
"""
