"""Calls of coroutines: order, time limits, attempts, capacity and what a snapshot holds."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.async_results import InOrder, Several
from tests.operators.world import Hosted, World, arrow
from tidegate import AsyncDataStream, DataStream
from tidegate.api.functions import RuntimeContext
from tidegate.api.functions.async_functions import AsyncFunction, AsyncRetryStrategy
from tidegate.api.operator import Pause
from tidegate.api.output_tag import OutputTag
from tidegate.errors import UserCodeFailed
from tidegate.model.elements import RowBatch, Watermark, WatermarkStatus
from tidegate.model.ids import CheckpointId
from tidegate.model.settings import SlotSettings
from tidegate.operators.async_calls.async_wait import AsyncWaitOperator
from tidegate.operators.async_calls.call_settings import CallSettings
from tidegate.testing import OperatorHarness

ONCE = AsyncRetryStrategy.no_restart()
LONG_MS = 60_000


class Step(Hosted):
    """An open operator, woken as a slot would."""

    out: InOrder

    def __init__(
        self,
        function: object,
        world: World,
        *,
        ordered: bool = True,
        timeout_ms: int = LONG_MS,
        capacity: int = 100,
        retry: AsyncRetryStrategy[object] = ONCE,
        **options: object,
    ) -> None:
        several = function if isinstance(function, AsyncFunction) else Several(function)
        settings = CallSettings(timeout_ms, capacity)
        operator = AsyncWaitOperator(several, retry, settings, ordered=ordered)
        super().__init__(operator, world, **options)
        self.out = InOrder()

    def pass_time(self, ms: int) -> None:
        """Time passes, millisecond by millisecond, with a turn after each."""
        self.turn()
        for _ in range(ms):
            self.world.pass_time(1)
            self.turn()

    def turn(self) -> None:
        """What is done leaves."""
        self.world.pass_time(0)
        self.world.raise_failures()
        if self.context.woken:
            self.context.woken = False
            self.drive(self.world.on_loop(lambda: self.operator.on_ready(self.out)))

    def mark(self, mark: Watermark | WatermarkStatus) -> None:
        operator = self.operator
        if isinstance(mark, Watermark):
            self.drive(self.world.on_loop(lambda: operator.on_watermark(mark, self.out)))
        else:
            operator.on_watermark_status(mark, self.out)


class Service:
    """Answers a value after as many milliseconds as the test says."""

    def __init__(self, takes_ms: Callable[[int], int] = lambda value: value) -> None:
        self.takes_ms = takes_ms
        self.called: list[int] = []
        self.now = self.most = 0

    async def ask(self, value: int) -> list[str]:
        self.called.append(value)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.takes_ms(value) / 1000)
        finally:
            self.now -= 1
        return [f"{value}", f"again {value}"][: value % 3]


def answers(value: int) -> list[str]:
    return [f"{value}", f"again {value}"][: value % 3]


async def echo(value: object) -> list[object]:
    return [value]


# --- order ----------------------------------------------------------------------------------------


def test_in_order_results_wait_for_those_before_them(world: World) -> None:
    step = Step(Service().ask, world)
    step.process(RowBatch([7, 1, 5], [70, 10, 50]))
    step.pass_time(6)
    assert step.out.values == []
    step.pass_time(2)
    assert step.out.values == ["7", "1", "5", "again 5"]
    assert step.out.stamps == [70, 10, 50, 50]


def test_without_order_results_leave_as_they_come(world: World) -> None:
    step = Step(Service().ask, world, ordered=False)
    step.process(RowBatch([7, 1, 5], [70, 10, 50]))
    step.pass_time(6)
    assert step.out.values == ["1", "5", "again 5"]
    step.finish()
    assert step.out.stamps == [10, 50, 50, 70]


@pytest.mark.parametrize("ordered", [True, False])
def test_event_time_stays_where_it_came(world: World, ordered: bool) -> None:
    step = Step(Service().ask, world, ordered=ordered)
    step.mark(Watermark(1))
    step.rows(4)
    step.mark(Watermark(2))
    step.mark(WatermarkStatus(idle=True))
    step.rows(1)
    assert step.out.log == [Watermark(1)]
    step.finish()
    assert step.out.log == [Watermark(1), "4", Watermark(2), WatermarkStatus(idle=True), "1"]


def test_rows_with_and_without_timestamps_leave_in_batches_of_their_own(world: World) -> None:
    step = Step(echo, world)
    step.process(RowBatch([1, 2], [10, 20]))
    step.process(RowBatch([3]))
    step.finish()
    assert step.out.batches == [RowBatch([1], [10]), RowBatch([2], [20]), RowBatch([3])]


def test_arrow_rows_come_as_dicts(world: World) -> None:
    step = Step(echo, world)
    step.process(arrow({"a": [1, None]}))
    step.finish()
    assert step.out.values == [{"a": 1}, {"a": None}]


def test_many_results_leave_in_batches_of_bounded_size_as_there_is_room(world: World) -> None:
    async def many(value: int) -> list[int]:
        return list(range(value))

    step = Step(many, world, settings=SlotSettings(rows=4))
    step.rows(20, 3)
    step.finish()
    assert [len(batch) for batch in step.out.batches] == [8, 8, 4, 3]


# --- capacity -------------------------------------------------------------------------------------


def test_no_more_calls_than_the_capacity_are_in_flight_and_input_is_held_back(world: World) -> None:
    service = Service(lambda value: 10)
    step = Step(service.ask, world, capacity=3)
    step.rows(1, 2, 3)
    assert step.operator.takes_input
    step.rows(4, 5)
    assert not step.operator.takes_input
    step.pass_time(9)
    assert service.called == [1, 2, 3]
    step.pass_time(2)
    assert service.called == [1, 2, 3, 4, 5] and step.operator.takes_input
    assert service.most == 3


def test_in_order_what_waits_for_a_slow_call_counts_for_the_capacity(world: World) -> None:
    service = Service(lambda value: 50 if value == 1 else 1)
    step = Step(service.ask, world, capacity=2)
    step.rows(1, 2, 4)
    step.pass_time(40)
    assert service.called == [1, 2]


def test_a_batch_that_comes_although_input_is_held_back_waits_its_turn(world: World) -> None:
    service = Service(lambda value: 10)
    step = Step(service.ask, world, capacity=1)
    step.rows(1, 2, 4)
    step.rows(5, 7)
    step.pass_time(25)
    assert service.called == [1, 2, 4] and not step.operator.takes_input
    step.finish()
    assert step.out.values == ["1", "2", "again 2", "4", "5", "again 5", "7"]


# --- time limits and attempts ---------------------------------------------------------------------


async def never(value: object) -> list[object]:
    await asyncio.Event().wait()
    return []


def test_a_call_that_takes_too_long_fails_and_says_where_it_hung(world: World) -> None:
    step = Step(never, world, timeout_ms=50, name="lookup")
    step.rows("x")
    step.pass_time(49)
    with pytest.raises(UserCodeFailed, match="operator 'lookup' took longer than 50 ms") as caught:
        step.pass_time(2)
    assert caught.value.where == "operator 'lookup', at the row 'x'"
    assert "await asyncio.Event().wait()" in caught.value.trace


class Patient(AsyncFunction[int, object]):
    def __init__(self) -> None:
        self.life: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.life.append(f"open in {runtime_context.get_index_of_this_subtask()}")
        asyncio.get_running_loop()

    async def async_invoke(self, value: int) -> list[object]:
        await asyncio.sleep(value / 1000)
        return [value]

    def timeout(self, value: int) -> list[object]:
        return [f"no {value}"]

    def close(self) -> None:
        self.life.append("close")


def test_a_function_may_give_results_for_a_timeout(world: World) -> None:
    function = Patient()
    step = Step(function, world, timeout_ms=50)
    step.rows(10, 200, 20)
    step.finish()
    step.close()
    assert step.out.values == [10, "no 200", 20]
    assert function.life == ["open in 0", "close"]
    assert world.monotonic_ms() < 60


@pytest.mark.parametrize("kind", [LookupError, SystemExit])
def test_what_a_timeout_raises_is_the_functions_failure(
    world: World, kind: type[BaseException]
) -> None:
    class Strict(Patient):
        def timeout(self, value: int) -> list[object]:
            raise kind(f"nothing about {value}")

    step = Step(Strict(), world, timeout_ms=50)
    step.rows(200)
    with pytest.raises(UserCodeFailed, match=f"{kind.__name__}: nothing about 200") as caught:
        step.pass_time(60)
    assert caught.value.where == "operator 'step', at the row 200"


def test_a_function_cannot_outlive_its_time_by_catching_the_cancellation(world: World) -> None:
    class Stubborn(Patient):
        async def async_invoke(self, value: int) -> list[object]:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                raise ConnectionError("aborted") from None
            return [value]

    always = AsyncRetryStrategy.fixed_delay(9, 0, exception_predicate=lambda error: True)
    step = Step(Stubborn(), world, timeout_ms=50, retry=always)
    step.rows(1)
    step.pass_time(60)
    assert step.out.values == ["no 1"]


class Flaky:
    """Raises, or gives nothing, a few times before it answers."""

    def __init__(self, world: World, failures: int) -> None:
        self.world = world
        self.left = failures
        self.at_ms: list[int] = []

    async def raising(self, value: int) -> list[int]:
        self.at_ms.append(self.world.monotonic_ms())
        if self.left:
            self.left -= 1
            raise ConnectionError("not yet")
        return [value]

    async def empty(self, value: int) -> list[int]:
        try:
            return await self.raising(value)
        except ConnectionError:
            return []


def test_a_call_that_raises_is_repeated_as_often_as_the_strategy_says(world: World) -> None:
    flaky = Flaky(world, 2)
    retry = AsyncRetryStrategy.fixed_delay(3, 20, exception_predicate=lambda error: True)
    step = Step(flaky.raising, world, retry=retry)
    step.rows(1)
    step.finish()
    assert step.out.values == [1]
    assert flaky.at_ms == pytest.approx([0, 20, 40], abs=3)


def test_the_last_failure_is_the_jobs(world: World) -> None:
    flaky = Flaky(world, 3)
    retry = AsyncRetryStrategy.fixed_delay(3, 20, exception_predicate=lambda error: True)
    step = Step(flaky.raising, world, retry=retry)
    step.rows(1)
    with pytest.raises(UserCodeFailed, match="raised ConnectionError: not yet") as caught:
        step.pass_time(100)
    assert len(flaky.at_ms) == 3
    assert caught.value.where == "operator 'step', at the row 1"
    assert 'raise ConnectionError("not yet")' in caught.value.trace


def test_exceptions_that_the_predicate_does_not_name_are_not_repeated(world: World) -> None:
    flaky = Flaky(world, 1)
    only = AsyncRetryStrategy.fixed_delay(
        3, 20, exception_predicate=lambda error: isinstance(error, KeyError)
    )
    step = Step(flaky.raising, world, retry=only)
    step.rows(1)
    with pytest.raises(UserCodeFailed, match="not yet"):
        step.pass_time(100)
    assert len(flaky.at_ms) == 1


def test_results_may_be_repeated_too_and_the_last_ones_count(world: World) -> None:
    flaky = Flaky(world, 9)
    retry = AsyncRetryStrategy.exponential_backoff(
        4, 10, 30, 2.0, result_predicate=lambda results: not results
    )
    step = Step(flaky.empty, world, retry=retry)
    step.rows(1)
    step.finish()
    assert step.out.values == []
    assert flaky.at_ms == pytest.approx([0, 10, 30, 60], abs=4)


def test_the_timeout_is_over_all_attempts(world: World) -> None:
    flaky = Flaky(world, 100)
    retry = AsyncRetryStrategy.fixed_delay(100, 20, exception_predicate=lambda error: True)
    step = Step(flaky.raising, world, retry=retry, timeout_ms=70)
    step.rows(1)
    with pytest.raises(UserCodeFailed, match="took longer than 70 ms"):
        step.pass_time(80)
    assert len(flaky.at_ms) == 4


# --- bad answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, 7, "text", (1, 2)])
def test_what_is_no_list_fails(world: World, given: object) -> None:
    async def careless(value: object) -> object:
        return given

    step = Step(careless, world, name="lookup")
    step.rows("x")
    with pytest.raises(UserCodeFailed) as caught:
        step.pass_time(1)
    assert caught.value.what == (
        "The result of AsyncFunction should be of list type: the function of operator "
        f"'lookup' gave {given!r}, which is not a list"
    )
    assert caught.value.where == "operator 'lookup', at the row 'x'"


def test_a_call_whose_own_wait_is_cancelled_fails(world: World) -> None:
    async def cancelled(value: object) -> list[object]:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    step = Step(cancelled, world)
    step.rows("x")
    with pytest.raises(UserCodeFailed, match="what it waited for was cancelled") as caught:
        step.pass_time(1)
    assert "return await future" in caught.value.trace


def test_what_a_function_changes_of_its_value_is_not_seen_by_the_next_attempt(world: World) -> None:
    calls: list[dict[str, int]] = []

    async def enrich(row: dict[str, int]) -> list[dict[str, int]]:
        calls.append(dict(row))
        row["seen"] = row.get("seen", 0) + 1
        if len(calls) == 1:
            raise ConnectionError("not yet")
        return [row]

    retry = AsyncRetryStrategy.fixed_delay(2, 0, exception_predicate=lambda error: True)
    step = Step(enrich, world, retry=retry)
    step.rows({"id": 1})
    step.finish()
    assert calls == [{"id": 1}, {"id": 1}]
    assert step.out.values == [{"id": 1, "seen": 1}]


def test_results_that_the_function_goes_on_changing_are_copied(world: World) -> None:
    shared = {"count": 0}

    async def counting(value: int) -> list[dict[str, int]]:
        shared["count"] += 1
        return [shared]

    step = Step(counting, world)
    step.rows(1, 2)
    step.finish()
    assert step.out.values == [{"count": 1}, {"count": 2}]


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_snapshot_holds_what_has_not_left_and_a_restore_calls_it_first(world: World) -> None:
    before = Service(lambda value: 100 if value == 2 else 1)
    step = Step(before.ask, world, capacity=3)
    step.process(RowBatch([1, 2, 4, 5], [10, 20, 40, 50]))
    step.pass_time(5)
    assert step.out.values == ["1"]
    lists = step.snapshot(1).lists[0]
    after = Service(lambda value: 1)
    second = Step(after.ask, world, lists=lists, restored=CheckpointId(1))
    assert after.called == []
    second.turn()
    second.process(RowBatch([7], [70]))
    second.finish()
    assert after.called == [2, 4, 5, 7]
    assert second.out.values == ["2", "again 2", "4", "5", "again 5", "7"]
    assert second.out.stamps == [20, 20, 40, 50, 50, 70]
    assert second.snapshot(2).lists[0] == {"AsyncWaitInFlight": []}


def test_what_is_restored_is_called_though_nothing_more_comes(world: World) -> None:
    lists: dict[str, list[object]] = {"AsyncWaitInFlight": [(1, 10), (2, 20)]}
    step = Step(Service().ask, world, lists=lists, restored=CheckpointId(1))
    step.pass_time(4)
    assert step.out.values == ["1", "2", "again 2"]


def test_what_a_call_raises_when_the_subtask_is_over_is_nobodys_failure(world: World) -> None:
    async def fragile(value: int) -> list[int]:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            raise ConnectionError("torn") from None
        return [value]

    step = Step(fragile, world)
    step.rows(1)
    step.pass_time(1)
    step.close()
    world.settle()
    assert step.out.values == [] and world.started == []


def test_what_a_function_changed_of_its_value_is_not_in_the_snapshot(world: World) -> None:
    async def changing(row: dict[str, int]) -> list[dict[str, int]]:
        row["seen"] = 1
        await asyncio.sleep(1)
        return [row]

    step = Step(changing, world)
    step.rows({"id": 1})
    step.pass_time(1)
    assert step.snapshot(1).lists[0] == {"AsyncWaitInFlight": [({"id": 1}, None)]}


def test_results_wait_in_the_queue_where_there_is_no_room_and_a_snapshot_holds_their_rows(
    world: World,
) -> None:
    step = Step(echo, world, settings=SlotSettings(rows=2))
    step.rows(1, 2, 3, 4, 5)
    world.pass_time(1)
    step.out.has_room = False
    steps = world.on_loop(lambda: step.operator.on_ready(step.out))
    assert world.on_loop(lambda: next(steps)) is Pause.HERE
    assert step.out.values == [1], "more may take long behind this step"
    in_flight = [(value, None) for value in (2, 3, 4, 5)]
    assert step.snapshot(1).lists[0] == {"AsyncWaitInFlight": in_flight}
    step.drive(steps)
    assert step.out.values == [1, 2, 3, 4, 5]


SCRIPT = st.lists(
    st.one_of(
        st.lists(st.integers(0, 12), min_size=1, max_size=6),
        st.integers(1, 15).map(lambda ms: ("time", ms)),
        st.just("watermark"),
    ),
    max_size=8,
)
"""Batches of delays, milliseconds; time that passes; watermarks."""


class Trial:
    """A script played to one operator or, with a restore at some place, to two."""

    def __init__(self, ordered: bool, capacity: int, heeds: bool) -> None:
        self.ordered = ordered
        self.capacity = capacity
        self.heeds = heeds
        self.delays: list[int] = []
        self.came: list[object] = []
        self.service = Service(lambda number: self.delays[number])
        self.watermarks = 0

    def step(self, world: World, lists: dict[str, list[object]]) -> Step:
        self.service.now = 0
        made = Step(
            self.service.ask, world, ordered=self.ordered, capacity=self.capacity, lists=lists
        )
        made.turn()
        return made

    def play(self, step: Step, script: list[object]) -> None:
        for each in script:
            match each:
                case list(delays):
                    first = len(self.delays)
                    self.delays += delays
                    numbers = list(range(first, len(self.delays)))
                    while self.heeds and not step.operator.takes_input:
                        step.pass_time(1)
                    self.came += [answer for number in numbers for answer in answers(number)]
                    step.process(RowBatch(numbers, [10 * number for number in numbers]))
                case ("time", int(ms)):
                    step.pass_time(ms)
                case _:
                    self.watermarks += 1
                    step.mark(Watermark(self.watermarks))
                    self.came.append(Watermark(self.watermarks))


def marks_apart(log: list[object]) -> list[list[object]]:
    """The values between watermarks, sorted; stretches without values are left out."""
    found: list[list[object]] = [[]]
    for each in log:
        if isinstance(each, Watermark):
            found.append([])
        else:
            found[-1].append(each)
    return [sorted(stretch, key=str) for stretch in found if stretch]


@given(script=SCRIPT, ordered=st.booleans(), capacity=st.integers(1, 6), heeds=st.booleans())
def test_whatever_takes_how_long_order_and_capacity_hold(
    script: list[object], ordered: bool, capacity: int, heeds: bool
) -> None:
    trial = Trial(ordered, capacity, heeds)
    with World() as world:
        step = trial.step(world, {})
        trial.play(step, script)
        step.finish()
    assert marks_apart(step.out.log) == marks_apart(trial.came)
    if ordered:
        values = [each for each in trial.came if not isinstance(each, Watermark)]
        assert step.out.values == values
    assert step.out.stamps == [10 * int(str(value).split()[-1]) for value in step.out.values]
    assert trial.service.most <= capacity
    assert sorted(trial.service.called) == list(range(len(trial.delays)))


@given(
    before=SCRIPT,
    after=SCRIPT,
    ordered=st.booleans(),
    capacity=st.integers(1, 6),
    heeds=st.booleans(),
)
def test_after_a_restore_exactly_what_had_not_left_is_called_again(
    before: list[object], after: list[object], ordered: bool, capacity: int, heeds: bool
) -> None:
    trial = Trial(ordered, capacity, heeds)
    with World() as world:
        first = trial.step(world, {})
        trial.play(first, before)
        lists = first.snapshot(1).lists[0]
        left = list(first.out.values)
        known = len(trial.delays)
    trial.service.called.clear()
    with World() as world:
        second = trial.step(world, lists)
        trial.play(second, after)
        second.finish()
    missing = [
        number for number in range(known) for answer in answers(number)[:1] if answer not in left
    ]
    nothing_to_say = [number for number in range(known) if not answers(number)]
    again = [number for number in trial.service.called if number < known]
    assert [number for number in again if number not in nothing_to_say] == missing
    assert trial.service.called == sorted(trial.service.called), "what is restored comes first"
    values = [each for each in trial.came if not isinstance(each, Watermark)]
    total = left + second.out.values
    assert total == values if ordered else sorted(total, key=str) == sorted(values, key=str)
    assert trial.service.most <= capacity


def test_a_result_that_cannot_be_copied_is_told_with_its_row(world: World) -> None:
    async def asked(value: int) -> int:
        return value

    async def forgets(value: int) -> list[object]:
        return [asked(value)]

    step = Step(forgets, world)
    step.rows(3)
    with pytest.raises(UserCodeFailed, match="returned a coroutine where a record") as caught:
        step.pass_time(1)
    assert caught.value.where == "operator 'step', at the row 3"
    assert "await the call" in caught.value.remedy


def test_a_result_that_cannot_be_copied_is_a_dead_letter_where_these_are_asked_for() -> None:
    async def nobody(value: int) -> int:
        return value

    async def forgets(value: int) -> list[object]:
        return [nobody(value) if value == 4 else value]

    def asked(numbers: DataStream[int]) -> DataStream[object]:
        answers = AsyncDataStream.ordered_wait(numbers, Several(forgets), 1_000)
        return answers.dead_letters(OutputTag("bad"))

    with OperatorHarness(asked) as harness:
        harness.process_all([3, 4, 5])
        harness.end()
        assert harness.take() == [3, 5]
        [letter] = harness.take_side_output(OutputTag("bad"))
        assert letter.value == 4 and "returned a coroutine" in letter.why
