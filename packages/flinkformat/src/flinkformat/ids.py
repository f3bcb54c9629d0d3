"""Names that stand in Flink's metadata."""

from __future__ import annotations

from typing import NewType

OperatorId = NewType("OperatorId", bytes)
"""16 bytes that outlive redeployments; made by `flinkformat.operator_ids`."""

CheckpointId = NewType("CheckpointId", int)
"""Counts from 1, ascending, never used twice in the life of a job."""
