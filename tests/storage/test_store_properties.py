from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.storage.stores_under_test import MAKERS
from tidegate.errors import FileMissing, StorageFailed
from tidegate.storage.store import Store, write_new

names = st.sampled_from(["f", "g", "a/f", "a/g", "a/b/f"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), names, st.binary(max_size=20)),
        st.tuples(st.just("abort"), names, st.binary(max_size=20)),
        st.tuples(st.just("delete"), names, st.just(b"")),
        st.tuples(st.just("delete_folder"), st.sampled_from(["a", "a/b"]), st.just(b"")),
        st.tuples(st.just("rename"), names, st.just(b"")),
    ),
    max_size=12,
)


def perform(store: Store, step: tuple[str, str, bytes]) -> str:
    act, path, data = step
    try:
        match act:
            case "write":
                return str(write_new(store, path, data))
            case "abort":
                writer = store.open_new(path)
                writer.write(data)
                writer.abort()
            case "delete":
                store.delete([path])
            case "delete_folder":
                store.delete_folder(path)
            case _:
                if store.info("moved") is None:
                    store.rename(path, "moved")
    except FileMissing:
        return "missing"
    except StorageFailed:
        return "failed"
    return "done"


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "memory"])
@examples(30)
@given(steps=steps)
def test_a_real_store_does_what_its_twin_in_memory_does(
    kind: str, steps: list[tuple[str, str, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        twin, real = MAKERS["memory"](Path(folder)), MAKERS[kind](Path(folder))
        for step in steps:
            assert perform(real, step) == perform(twin, step), step
            assert list(real.list()) == list(twin.list())
        for info in twin.list():
            assert real.read(info.path) == twin.read(info.path)
