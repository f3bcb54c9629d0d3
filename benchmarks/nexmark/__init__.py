"""Nexmark: events, queries in three forms, and what they must give."""

NAMES = tuple(f"q{number}" for number in range(23))
BATCHED = ("q0", "q1", "q2", "q5", "q7", "q13", "q14", "q15", "q16", "q17", "q18", "q21", "q22")
"""Queries that have a form over Arrow batches."""
