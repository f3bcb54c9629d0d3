"""Keyed and operator state as Flink's backends write it.

Read from the bottom up: `serializers` and `composites` (a value), `headers` (which states there
are), `sections`, `rocksdb` and `changelog` (the entries of keyed state), `operator_state`,
and `reading` (all of it, whichever backend has written it).
"""
