"""The loop around join functions: pairs of two streams whose event times lie close together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.loops.calls import UserCall
    from tidegate.loops.cells import KeyCell


class JoinSide:
    """Records of one stream. kept: map state of the key's records by event time, in lists.

    lower_ms, upper_ms: how far partners of the other stream lie after a record, both included.
    """

    def __init__(self, kept: Any, lower_ms: int, upper_ms: int) -> None:
        self.kept: Final = kept
        self.lower_ms: Final = lower_ms
        self.upper_ms: Final = upper_ms


def results_of_pairs(
    user: UserCall,
    pair: Any,
    cell: KeyCell,
    is_right: bool,
    ours: JoinSide,
    theirs: JoinSide,
    wait_for: Callable[[int], object],
    values: list[Any],
    keys: list[Any],
    groups: list[int],
    stamps: list[int],
) -> Iterator[object]:
    """Results of ``call(left, right, pair)`` for each record with each of its partners, in order.

    Each record is kept for those that come later. pair: told the times of both. is_right: the
    records are of the right stream. wait_for: told the event time of each record that is kept.
    """
    call, own, may_be_text = user.call, user.own, user.may_be_text
    lower_ms, upper_ms = ours.lower_ms, ours.upper_ms
    get, put = ours.kept.get, ours.kept.put
    their_times, their_get = theirs.kept.keys, theirs.kept.get
    value: object = None
    results: Any = None
    try:
        for value, cell.key, cell.group, ms in zip(  # noqa: B905 - slow if strict
            values, keys, groups, stamps
        ):
            held = get(ms)
            if held:
                held.append(value)
            else:
                held = [value]
            put(ms, held)
            wait_for(ms)
            first_ms, last_ms = ms + lower_ms, ms + upper_ms
            # Others may be kept by the time that the first are joined; these wait for their turn.
            near = [(at, their_get(at)) for at in their_times() if first_ms <= at <= last_ms]
            if len(near) > 1:
                near.sort(key=_time)
            for at, others in near:
                for other in others or ():
                    if is_right:
                        pair.left_ms, pair.right_ms = at, ms
                        results = call(other, value, pair)
                    else:
                        pair.left_ms, pair.right_ms = ms, at
                        results = call(value, other, pair)
                    if results is not None:
                        if may_be_text and (type(results) is str or type(results) is bytes):
                            raise TypeError("text is not an iterable of records")
                        beside = yield from (results if own is None else map(own, results))
                        if beside is not None:
                            raise user.beside(beside)
    except BaseException as error:
        raise user.failed(error, value, results)  # noqa: B904 - which sets the cause


def _time(entry: tuple[int, Any]) -> int:
    return entry[0]
