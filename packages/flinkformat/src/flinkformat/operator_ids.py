"""Operator ids by Flink's rules, so that state finds its operator again, ours or Flink's.

With a uid the id is a hash of the uid alone. Without one it is a hash of the operator's place: how
many operators were hashed before it, how many of its outputs can be chained, and the ids of its
inputs; neither names, parallelism nor user code count, save through chainability.
Source: Flink, StreamGraphHasherV2; golden graphs in tests/fixtures/golden-rules.jsonl.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import mmh3

from flinkformat.errors import GraphError
from flinkformat.frozen import frozen
from flinkformat.ids import OperatorId

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@frozen
class HashedNode:
    """A node of the stream graph as the hash sees it; `node` only orders the sources."""

    node: int
    uid: str | None = None


@frozen
class HashedEdge:
    """An edge of the stream graph as the hash sees it."""

    source: int
    target: int
    chainable: bool


def operator_id_of_uid(uid: str) -> OperatorId:
    return OperatorId(_murmur3_128(uid.encode("utf-8", "replace")))


def operator_ids(nodes: Sequence[HashedNode], edges: Sequence[HashedEdge]) -> dict[int, OperatorId]:
    """Ids of all nodes, by node number, in the order in which they were hashed.

    edges: in the order in which they were added. The graph must not have a cycle.
    Raises GraphError if two nodes have the same uid, naming all such uids.
    """
    _check_uids(nodes)
    return _Traversal(nodes, edges).run()


class _Traversal:
    def __init__(self, nodes: Sequence[HashedNode], edges: Sequence[HashedEdge]) -> None:
        self._uids = {each.node: each.uid for each in nodes}
        self._into: dict[int, list[HashedEdge]] = {each.node: [] for each in nodes}
        self._out: dict[int, list[HashedEdge]] = {each.node: [] for each in nodes}
        for edge in edges:
            self._into[edge.target].append(edge)
            self._out[edge.source].append(edge)
        self._ids: dict[int, OperatorId] = {}

    def run(self) -> dict[int, OperatorId]:
        queue = deque(sorted(node for node, edges in self._into.items() if not edges))
        visited = set(queue)
        while queue:
            node = queue.popleft()
            made = self._id_of(node)
            if made is None:
                # An input is still to come; it puts the node into the queue again.
                visited.discard(node)
                continue
            self._ids[node] = made
            for edge in self._out[node]:
                if edge.target not in visited:
                    visited.add(edge.target)
                    queue.append(edge.target)
        assert len(self._ids) == len(self._uids), "the stream graph has a cycle"
        return self._ids

    def _id_of(self, node: int) -> OperatorId | None:
        uid = self._uids[node]
        if uid is not None:
            made = operator_id_of_uid(uid)
            if made in self._ids.values():
                raise _collision([uid])
            return made
        if any(edge.source not in self._ids for edge in self._into[node]):
            return None
        return self._hash_of_place(node)

    def _hash_of_place(self, node: int) -> OperatorId:
        count = len(self._ids).to_bytes(4, "little")
        chainable = sum(edge.chainable for edge in self._out[node])
        made = _murmur3_128(count * (1 + chainable))
        for edge in self._into[node]:
            other = self._ids[edge.source]
            made = bytes((a * 37 ^ b) & 0xFF for a, b in zip(made, other, strict=True))
        return OperatorId(made)


def _check_uids(nodes: Sequence[HashedNode]) -> None:
    seen: set[str] = set()
    twice: dict[str, None] = {}
    for each in nodes:
        if each.uid is not None and each.uid in seen:
            twice[each.uid] = None
        elif each.uid is not None:
            seen.add(each.uid)
    if twice:
        raise _collision(twice)


def _collision(uids: Collection[str]) -> GraphError:
    named = ", ".join(f'"{uid}"' for uid in uids)
    return GraphError(
        f"Hash collision on user-specified ID {named}. Most likely cause is a non-unique ID.",
        where=f"uid {named}",
        remedy="Please check that all IDs specified via `uid(String)` are unique.",
    )


def _murmur3_128(data: bytes) -> bytes:
    return mmh3.hash_bytes(data, 0, x64arch=True)
