"""The dictionary of texts against a dict."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.typeinfo.text_index import TextIndex

TEXTS = st.text(max_size=3) | st.sampled_from(["a", "b", "a\0", "\ud800"])


@given(batches=st.lists(st.lists(TEXTS, max_size=60), max_size=8))
def test_the_index_places_each_new_text_once(batches: list[list[str]]) -> None:
    index = TextIndex()
    model: dict[str, int] = {}
    for batch in batches:
        first = len(model)
        rows, new = index.place(np.array(batch, np.object_))
        assert (np.diff(new) > 0).all()
        model |= {batch[position]: first + row for row, position in enumerate(new.tolist())}
        assert rows.tolist() == [model[key] for key in batch]
        assert index.keys.tolist() == list(model) and len(index) == len(model)
