"""The latest row of each id, from a log of changes that comes doubled and is sent again in parts.

Each change has a version. What is not newer than the last change of its id is dropped, so
whatever is sent again changes nothing. Rows keep their kind: +I, -U, +U, -D.
"""

from tidegate import (
    KeyedProcessFunction,
    Row,
    RowKind,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

CHANGE = Types.ROW_NAMED(["id", "name", "version"], [Types.LONG(), Types.STRING(), Types.LONG()])


def change(kind, number, name, version):
    return Row.of_kind(kind, id=number, name=name, version=version)


CHANGES = [
    change(RowKind.INSERT, 1, "a", 1),
    change(RowKind.INSERT, 2, "b", 2),
    change(RowKind.UPDATE_BEFORE, 1, "a", 3),
    change(RowKind.UPDATE_AFTER, 1, "c", 4),
    change(RowKind.DELETE, 2, "b", 5),
    change(RowKind.INSERT, 3, "d", 6),
]
LOG = [each for each in CHANGES for _ in range(2)] + CHANGES[1:]
"""Each change twice, and all but the first once more."""


class Newer(KeyedProcessFunction):
    """The changes that are newer than the last one of their id."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", CHANGE))

    def process_element(self, value, ctx):
        last = self.last.value()
        if last is None or value.version > last.version:
            self.last.update(value)
            yield value


def changes_once(log):
    """log: a stream as LOG is."""
    return log.key_by(lambda row: row.id, Types.LONG()).process(Newer(), CHANGE).uid("newer")


def table(changes):
    """What the changes make of an empty table: names by id."""
    rows = {}
    for row in changes:
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[row.id] = row.name
        else:
            del rows[row.id]
    return rows


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    changes = changes_once(env.from_collection(LOG, CHANGE).uid("log"))
    with changes.execute_and_collect("latest row") as results:
        seen = list(results)
    for row in seen:
        print(row.get_row_kind(), row)
    print(table(seen))


if __name__ == "__main__":
    main()
