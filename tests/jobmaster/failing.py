"""Settings and errors of jobs that fail."""

from tidegate.errors import (
    UserCodeFailed,
)
from tidegate.model.settings import (
    FixedDelay,
    JobSettings,
)

RESTARTS = JobSettings(restart=FixedDelay(attempts=100, delay_ms=2_000), slots_timeout_ms=10**9)


BROKEN = UserCodeFailed("ValueError: bad row", where="map (1/3)", trace="Traceback: …")
