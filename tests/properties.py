"""How many examples a property is tried on: all in `make test`, an eighth in `make check`."""

from hypothesis import HealthCheck, settings

FULL = 100


def register_profiles() -> None:
    """Registers `full`, which holds from here on, and `quick`, which `make check` asks for."""
    settings.register_profile("full", deadline=None, max_examples=FULL)
    settings.register_profile(
        "quick",
        deadline=None,
        max_examples=FULL // 8,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("full")


def examples(count: int) -> settings:
    """So many in `make test`, and in `make check` the share that its profile gives."""
    return settings(max_examples=max(1, count * settings().max_examples // FULL))
