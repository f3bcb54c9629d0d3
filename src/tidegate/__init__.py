"""Tidegate: stateful stream processing with Flink-grade checkpoints, in Python, on Spark."""
