"""Each id once, until it has not been seen anew for a second: state with a time to live.

The second counts from when an id was passed on. Afterwards its state is gone, and the id is new
again.
"""

from tidegate import (
    KeyedProcessFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueStateDescriptor,
)

TICKS = ["x", "y", "x", *[None] * 8, "x"]
"""What comes each quarter of a second; None is nothing."""


class FirstSeen(KeyedProcessFunction):
    """Passes on an id that it has not seen within its time."""

    def __init__(self, ttl):
        self.ttl = ttl

    def open(self, runtime_context):
        seen = ValueStateDescriptor("seen", Types.BOOLEAN())
        seen.enable_time_to_live(StateTtlConfig.new_builder(self.ttl).build())
        self.seen = runtime_context.get_state(seen)

    def process_element(self, value, ctx):
        if not self.seen.value():
            self.seen.update(True)
            yield value


def first_seen(ids, ttl):
    """ids: a stream of texts."""
    return ids.key_by(lambda name: name, Types.STRING()).process(FirstSeen(ttl)).uid("first-seen")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    ticks = env.generate(lambda tick: TICKS[tick], len(TICKS), rate=4).set_parallelism(1)
    ids = ticks.uid("ticks").filter(lambda name: name is not None)
    with first_seen(ids, Time.seconds(1)).execute_and_collect("deduplicate") as results:
        for name in results:
            print(name)


if __name__ == "__main__":
    main()
