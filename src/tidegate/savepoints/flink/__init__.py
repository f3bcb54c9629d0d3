"""Snapshots of Apache Flink as data: their keyed and operator state, read, written, and migrated.

Layout of the bytes: docs/formats/flink-state.md. Read from the bottom up: `serializers` (a value),
`headers` (which states there are), `heap`, `rocksdb` and `changelog` (the entries of keyed state),
`operator_state`, `snapshot` (all of it, from a folder), `canonical` (the way back), `pyflink` (what
PyFlink makes of all that) and `migrate`.
"""
