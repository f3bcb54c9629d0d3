"""The clock of tests: it stands still until a test moves it, or moves a little at each look."""

WALL_MS = 1_700_000_000_000


class StepClock:
    """A clock for tests of parts; `tidegate.testing.ManualClock` is the one that users have.

    step_ms: what passes with each look, so that slices of work end where a test wants them to.
    stands_at_ms: what the wall's clock shows, however much passes; None lets it go on as well.
    """

    def __init__(
        self, now_ms: float = 0, *, step_ms: float = 0, stands_at_ms: int | None = None
    ) -> None:
        self.now_ms = now_ms
        self.step_ms = step_ms
        self.stands_at_ms = stands_at_ms

    def monotonic_ms(self) -> int:
        self.now_ms += self.step_ms
        return int(self.now_ms)

    def precise_s(self) -> float:
        self.now_ms += self.step_ms
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        if self.stands_at_ms is None:
            return WALL_MS + int(self.now_ms)
        return self.stands_at_ms

    def advance(self, ms: float) -> None:
        self.now_ms += ms
