"""How a demonstration ended: what was committed, how long recovery took, whether all held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from examples.demo.job import (
    DAYS,
    DAYS_SCHEMA,
    LATE,
    LATE_SCHEMA,
    STATISTICS,
    STATISTICS_SCHEMA,
)
from examples.demo.verify import Committed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from examples.demo.verify import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of the last line.

    killed, kills_wanted: processes. recovery_s: the longest, None where nothing was killed.
    seconds: from the start of the driver to the end of the job.
    """

    verdict: Verdict
    killed: int
    kills_wanted: int
    recovery_s: float | None
    checkpoints: int
    seconds: float

    @property
    def held(self) -> bool:
        return self.verdict.matches and self.killed == self.kills_wanted

    def as_json(self) -> dict[str, object]:
        return {
            "read": self.verdict.read,
            "counted": self.verdict.counted,
            "lost": self.verdict.lost,
            "doubled": self.verdict.doubled,
            "killed": self.killed,
            "recovery_s": self.recovery_s,
            "checkpoints": self.checkpoints,
            "windows": self.verdict.windows,
            "late": self.verdict.late,
            "seconds": round(self.seconds, 1),
            "matches": self.verdict.matches,
        }

    def as_line(self) -> str:
        """The figures as a line."""
        verdict = self.verdict
        recovery = "" if self.recovery_s is None else f"recovered in {self.recovery_s:.2f} s, "
        wanted = "" if self.killed == self.kills_wanted else f" of {self.kills_wanted}"
        agreement = (
            "all numbers agree" if verdict.matches else f"NUMBERS DIFFER in {verdict.wrong:,} rows"
        )
        return (
            f"read {verdict.read:,}, counted {verdict.counted:,}, lost {verdict.lost:,}, "
            f"doubled {verdict.doubled:,}, killed {self.killed}{wanted}, {recovery}"
            f"{self.checkpoints} checkpoints, {verdict.windows:,} windows, {verdict.late:,} late, "
            f"{self.seconds:.1f} s: {agreement}"
        )


def read_committed(output: Path) -> Committed:
    """All rows of the files that the sinks have committed, and of no others."""
    return Committed(
        statistics=_rows(output / STATISTICS, STATISTICS_SCHEMA),
        days=_rows(output / DAYS, DAYS_SCHEMA),
        late=_rows(output / LATE, LATE_SCHEMA),
    )


def recovery_s(kills_ms: Iterable[int], statistics: pd.DataFrame) -> float | None:
    """Longest time from a kill to the first record emitted after the restore.

    The moments stand in the rows themselves. A run that began after the kill counts, whatever
    another subtask of the run before still emitted; rows that were never committed do not.
    """
    runs = statistics.groupby(["driver", "attempt"])["emitted_ms"].min()
    waits: list[int] = []
    for kill_ms in kills_ms:
        after = [int(begun) - kill_ms for begun in runs if begun >= kill_ms]
        if after:
            waits.append(min(after))
    return max(waits) / 1000 if waits else None


def _rows(output: Path, schema: pa.Schema) -> pd.DataFrame:
    files = sorted(path for path in output.glob("**/*.parquet") if _is_committed(path, output))
    tables = [pq.read_table(file, schema=schema) for file in files]
    rows = [table.to_pandas() for table in tables]
    import pandas as pd

    return pd.concat(rows) if rows else schema.empty_table().to_pandas()


def _is_committed(path: Path, output: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in path.relative_to(output).parts)
