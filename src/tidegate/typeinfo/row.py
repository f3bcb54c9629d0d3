"""Where `Row` stood: values of it that were pickled into snapshots name this module."""

from flinkformat.row import Row, RowKind

__all__ = ["Row", "RowKind"]
