"""The examples that a property is tried on.

`make test` tries the same ones each time, so that no change is refused for a fault that was there
before; `make check` an eighth of as many, and `make properties` ten times as many, of its own.
"""

from hypothesis import HealthCheck, settings

FULL = 100


def register_profiles() -> None:
    """Registers `full`, which holds from here on, and those that other commands ask for."""
    settings.register_profile("full", deadline=None, max_examples=FULL, derandomize=True)
    settings.register_profile(
        "fresh",
        deadline=None,
        max_examples=10 * FULL,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile(
        "quick",
        deadline=None,
        max_examples=FULL // 8,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("full")


def examples(count: int) -> settings:
    """So many in `make test`, and elsewhere the share that the profile gives."""
    return settings(max_examples=max(1, count * settings().max_examples // FULL))
