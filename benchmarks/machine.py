"""How fast the machine is just now, and which Python runs on it.

A virtual machine shares its cores: the same loop takes 1.0 or 1.5 to 1.9 times as long within
minutes. So each run is calibrated by one fixed loop before and after it, and figures count that
were taken in the quiet mode.
"""

import platform
import sys
import sysconfig
import time
from collections.abc import Iterable

ROUNDS = 200_000
REPEATS = 3
QUIET = 1.2
"""A loop of the quiet mode takes at most so many times as long as the fastest of the session."""


def calibration_ms() -> float:
    """Wall time of a fixed loop of plain Python, the least of three; about 20 ms at rest."""
    return min(loop_ms() for _ in range(REPEATS))


def loop_ms() -> float:
    counts: dict[int, int] = {}
    began = time.perf_counter_ns()
    for number in range(ROUNDS):
        key = number * 2654435761 & 1023
        counts[key] = counts.get(key, 0) + number
    return (time.perf_counter_ns() - began) / 1e6


def quiet(calibrations: Iterable[float], fastest_ms: float) -> bool:
    """True if the loop was about as fast as it can be, before a run and after it."""
    return max(calibrations) <= QUIET * fastest_ms


def python_build() -> str:
    """Version, and how it was built: profile-guided optimisation is worth up to 1.6 times."""
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        build = "profile-guided optimisation"
    elif sys.base_prefix == "/usr":
        # Distributions call `make profile-opt` themselves, and no variable of the build tells.
        build = "the distribution's build"
    else:
        build = "no profile-guided optimisation"
    return f"{platform.python_version()}, {build}"
