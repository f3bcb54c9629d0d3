"""Loops around window functions: the results of one window for many keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.loops.cells import KeyCell


class WindowCall:
    """A window function, and what becomes of its results and failures.

    call: the function; None if the elements are the results. with_key: it is given the key first.
    context: given to it in place of the window, where it takes one. result: makes the only element
    of what a window holds; None if that is the element. elements: makes all elements of it; None
    where there is one. own: makes a result the next operator's own; None if it may be shared.
    faults: makes errors, as ``operators.windows.firing.WindowFaults`` says; it sets their causes,
    which compiled code forgets.
    """

    def __init__(
        self,
        call: Callable[..., Any] | None,
        with_key: bool,
        context: object,
        result: Callable[[Any], object] | None,
        elements: Callable[[Any], Any] | None,
        own: Callable[[object], object] | None,
        faults: Any,
    ) -> None:
        self.call: Final = call
        self.with_key: Final = with_key
        self.context: Final = context
        self.result: Final = result
        self.elements: Final = elements
        self.own: Final = own
        self.faults: Final = faults


def results_of_window(
    user: WindowCall,
    window: object,
    namespace: object,
    cell: KeyCell,
    pair: KeyCell,
    keys: list[object],
    groups: list[int],
    contents: list[Any],
    after: Callable[[], object] | None,
) -> Iterator[object]:
    """Results of a window for each key, which stands in the cell meanwhile.

    namespace: of the window; the pair has it beside the key. groups, contents: one for each of the
    keys; what is None raises ``missing``. after: called once the results of a key are drawn.
    """
    call, own = user.call, user.own
    key: object = None
    results: Any = None
    second = window if user.context is None else user.context
    for key, group, content in zip(keys, groups, contents):  # noqa: B905 - slow if strict
        cell.key = key
        cell.group = group
        pair.key = (key, namespace)
        pair.group = group
        try:
            if content is None:
                raise user.faults.missing()
            if user.elements is not None:
                results = user.elements(content)
            elif user.result is None:
                results = [content]
            else:
                results = [user.result(content)]
            if call is not None:
                results = call(key, second, results) if user.with_key else call(second, results)
            if results is not None:
                if isinstance(results, list):
                    yield from (results if own is None else list(map(own, results)))
                else:
                    unfit = user.faults.unfit(results, key, window)
                    if unfit is not None:
                        raise unfit
                    beside = yield from (results if own is None else map(own, results))
                    if beside is not None:
                        raise user.faults.beside(beside)
        except BaseException as error:
            raise user.faults.failed(error, key, window)  # noqa: B904 - which sets the cause
        if after is not None:
            after()
