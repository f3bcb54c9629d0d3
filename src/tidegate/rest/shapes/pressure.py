"""Backpressure and watermarks as JSON. Source: REST §3.3, §3.4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.jobmaster.view import VertexView
    from tidegate.rest.rates import Shares

Object = dict[str, object]

LOW_ABOVE: Final = 0.1
HIGH_ABOVE: Final = 0.5


def backpressure(shares: Mapping[int, Shares], now_ms: int) -> Object:
    """``…/backpressure``. shares: by subtask; empty until they are known."""
    if not shares:
        level = dict.fromkeys(("backpressureLevel", "backpressure-level"))
        return {"status": "deprecated", **level, "end-timestamp": None, "subtasks": None}
    return {
        "status": "ok",
        **_level(max(share.blocked for share in shares.values())),
        "end-timestamp": now_ms,
        "subtasks": [
            {
                "subtask": index,
                **_level(share.blocked),
                "ratio": share.blocked,
                "idleRatio": share.idle,
                "busyRatio": share.busy,
            }
            for index, share in shares.items()
        ],
    }


def _level(ratio: float) -> Object:
    level = "ok" if ratio <= LOW_ABOVE else "low" if ratio <= HIGH_ABOVE else "high"
    return {"backpressureLevel": level, "backpressure-level": level}


def watermarks(vertex: VertexView) -> list[Object]:
    return [
        {
            "id": f"{subtask.index}.currentInputWatermark",
            "value": str(subtask.figures.watermark_ms),
        }
        for subtask in vertex.subtasks
        if subtask.figures.watermark_ms is not None
    ]
