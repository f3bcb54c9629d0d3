"""How a sink in several steps hangs in a program."""

from collections.abc import Sequence

import pytest

from tidegate import (
    CommittableMessage,
    DataStream,
    GraphError,
    SinkWriter,
    StandardSinkTopologies,
    StreamExecutionEnvironment,
    WriterContext,
)


class Table:
    """A sink with one committer for all, behind a step of its own."""

    def writer(self, context: WriterContext, restored: Sequence[bytes]) -> SinkWriter:
        raise NotImplementedError

    def committer(self) -> None: ...

    def add_pre_commit_topology(
        self, committables: DataStream[CommittableMessage]
    ) -> DataStream[CommittableMessage]:
        return committables.global_().map(lambda message: message).name("merge").set_parallelism(1)

    def add_post_commit_topology(self, committables: DataStream[CommittableMessage]) -> None:
        StandardSinkTopologies.add_global_committer(committables, object)  # type: ignore[arg-type]


class Wrong(Table):
    """A sink whose topology leads nowhere."""

    def add_pre_commit_topology(  # type: ignore[override]
        self, committables: DataStream[CommittableMessage]
    ) -> None:
        pass


def test_its_steps_have_uids_and_parallelism_of_the_sink() -> None:
    env = StreamExecutionEnvironment.local(2)
    env.from_collection([1]).sink_to(Table()).uid("table").set_parallelism(3)
    graph = env.get_job_graph("job")
    found = {
        (operator.name, operator.uid, vertex.parallelism)
        for vertex in graph.topology.vertices
        for operator in vertex.operators
        if operator.uid is not None
    }
    assert found == {
        ("Sink: Table: Writer", "table", 3),
        ("merge", "table: merge 1", 1),
        ("Sink: Table: Committer", "table: Table: Committer 2", 1),
        ("Sink: Global Committer", "table: Global Committer 3", 1),
    }


def test_all_its_steps_are_the_sinks_which_a_fork_begins_anew() -> None:
    env = StreamExecutionEnvironment.local(2)
    env.from_collection([1]).map(str).name("text").sink_to(Table())
    topology = env.get_job_graph("job").topology
    operators = [operator for vertex in topology.vertices for operator in vertex.operators]
    assert {operator.name for operator in operators if not operator.sink} == {
        "Source: Collection Source",
        "text",
    }
    assert len([operator for operator in operators if operator.sink]) == 4


def test_a_topology_that_gives_no_stream_is_refused_by_the_sinks_name() -> None:
    env = StreamExecutionEnvironment.local(1)
    with pytest.raises(GraphError, match="add_pre_commit_topology of Wrong gives None") as refused:
        env.from_collection([1]).sink_to(Wrong())
    assert refused.value.remedy
