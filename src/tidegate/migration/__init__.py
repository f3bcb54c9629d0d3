"""Snapshots of Apache Flink become savepoints of ours, or canonical savepoints of Flink.

Flink's bytes are read by the package `flinkformat`. Read from the bottom up: `pyflink` (what
PyFlink puts into Flink's serializers), `types` (what these are here), `translations` (one state),
`declarations` (states that a PyFlink job has to declare), `taken` (an operator on its way),
and `from_flink` (all of it). `rewrite` goes from Flink to Flink.
"""
