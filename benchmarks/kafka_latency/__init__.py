"""Kafka to Kafka through a keyed step with state, at a steady rate: what a record waits."""

PARTITIONS = 4
"""Of each topic."""

KEYS = 50_000
