"""Old module of `Row`: pickles in snapshots name it."""

from flinkformat.row import Row, RowKind

__all__ = ["Row", "RowKind"]
