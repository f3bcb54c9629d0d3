"""Columnar keyed state: a row a key, an array a column."""
