"""Word count with keyed state, in two subtasks, with checkpoints.

Run it as it is, or with `tidegate run`, which says where it runs and what it starts from:
`tidegate run --runtime spark examples/word_count.py`.
"""

from collections.abc import Iterable

from tidegate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

LINES = ["to be or not to be", "to do is to be", "do be do be do"]


class Count(KeyedProcessFunction[str, tuple[str, int]]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(
        self, value: str, ctx: KeyedProcessFunction.Context
    ) -> Iterable[tuple[str, int]]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value, count


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).enable_checkpointing(500)
    words = env.from_collection(LINES).uid("lines").flat_map(str.split).name("Words")
    counts = words.key_by(lambda word: word).process(Count()).name("Count").uid("count")

    highest: dict[str, int] = {}
    with counts.execute_and_collect("word count") as results:
        for word, count in results:
            highest[word] = max(count, highest.get(word, 0))
    for word, count in sorted(highest.items(), key=lambda item: (-item[1], item[0])):
        print(f"{count} {word}")


if __name__ == "__main__":
    main()
