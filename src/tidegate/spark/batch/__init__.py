"""Bounded jobs as stages of Spark: a task hosts a subtask, and Spark's shuffle is its channels."""
