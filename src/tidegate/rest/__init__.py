"""Flink-compatible REST, served by the driver of a job: a view of it, and requests to it."""
