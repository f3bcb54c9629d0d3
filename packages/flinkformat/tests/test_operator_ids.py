from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flinkformat.errors import GraphError
from flinkformat.operator_ids import HashedEdge, HashedNode, operator_id_of_uid, operator_ids

if TYPE_CHECKING:
    from random import Random


def test_a_uid_alone_decides_the_id() -> None:
    nodes = [HashedNode(1), HashedNode(2, "count"), HashedNode(3)]
    edges = [HashedEdge(1, 2, False), HashedEdge(2, 3, True)]
    assert operator_ids(nodes, edges)[2] == operator_id_of_uid("count")


def test_an_unpaired_surrogate_counts_as_a_question_mark() -> None:
    assert operator_id_of_uid("a\ud83d") == operator_id_of_uid("a?")


def test_the_same_uid_twice_is_refused_with_all_such_uids() -> None:
    nodes = [HashedNode(i, uid) for i, uid in enumerate(["a", "b", "a", "c", "b", "a"])]
    with pytest.raises(GraphError) as raised:
        operator_ids(nodes, [])
    assert raised.value.what == (
        'Hash collision on user-specified ID "a", "b". Most likely cause is a non-unique ID.'
    )


def test_a_node_waits_for_its_last_input() -> None:
    # Node 3 is met first from the source 1, long before its second input 2 has an id.
    nodes = [HashedNode(1), HashedNode(2), HashedNode(3)]
    edges = [HashedEdge(1, 3, False), HashedEdge(1, 2, True), HashedEdge(2, 3, False)]
    assert list(operator_ids(nodes, edges)) == [1, 2, 3]


def test_node_numbers_only_order_the_sources() -> None:
    small = operator_ids([HashedNode(0), HashedNode(1)], [HashedEdge(0, 1, True)])
    large = operator_ids([HashedNode(70), HashedNode(9)], [HashedEdge(70, 9, True)])
    assert list(small.values()) == list(large.values())


@given(count=st.integers(1, 12), chance=st.randoms(use_true_random=False))
def test_each_node_of_an_acyclic_graph_has_an_id_of_its_own(count: int, chance: Random) -> None:
    nodes = [HashedNode(i) for i in range(count)]
    edges = [
        HashedEdge(source, target, chance.random() < 0.5)
        for target in range(1, count)
        for source in sorted(chance.sample(range(target), chance.randint(1, min(target, 3))))
    ]
    made = operator_ids(nodes, edges)
    assert made == operator_ids(nodes, edges)
    assert set(made) == set(range(count))
    assert all(len(each) == 16 for each in made.values())
    assert len(set(made.values())) == count
