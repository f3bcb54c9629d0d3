"""Aggregates that run by key: reduce, sums and extremes of fields, aggregates of batches."""
