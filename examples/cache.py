"""A cache in the stream: what is not used for a while is forgotten.

With ``OnReadAndWrite`` each look keeps a value for two seconds more; with ``OnCreateAndWrite`` only
putting it there does. The same commands are given to both.
"""

from tidegate import (
    KeyedProcessFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueStateDescriptor,
)

READS_COUNT = StateTtlConfig.UpdateType.OnReadAndWrite
WRITES_COUNT = StateTtlConfig.UpdateType.OnCreateAndWrite

TICK_S = 0.6
TICKS = ["put", None, "get", None, "get", None, None, None, None, "get"]
"""What is asked of the cache at each tick, for one key; None is nothing."""


class Cache(KeyedProcessFunction):
    """Answers each "get" with "hit" or "miss"."""

    def __init__(self, ttl, update_type):
        self.ttl = ttl
        self.update_type = update_type

    def open(self, runtime_context):
        held = ValueStateDescriptor("held", Types.STRING())
        config = StateTtlConfig.new_builder(self.ttl).set_update_type(self.update_type)
        held.enable_time_to_live(config.build())
        self.held = runtime_context.get_state(held)

    def process_element(self, value, ctx):
        if value == "put":
            self.held.update("something dear")
        else:
            yield "miss" if self.held.value() is None else "hit"


def answers(commands, ttl, update_type):
    """commands: a stream of "put" and "get"."""
    keyed = commands.key_by(lambda command: "the key", Types.STRING())
    return keyed.process(Cache(ttl, update_type)).uid(f"cache {update_type.name}")


def both_kinds(commands, ttl):
    """The answers of both, each with what keeps a value."""
    with_reads = answers(commands, ttl, READS_COUNT).map(lambda found: ("kept by reads", found))
    with_writes = answers(commands, ttl, WRITES_COUNT).map(lambda found: ("kept by writes", found))
    return with_reads.union(with_writes)


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    ticks = env.generate(lambda n: TICKS[n], len(TICKS), rate=1 / TICK_S).set_parallelism(1)
    commands = ticks.uid("ticks").filter(lambda command: command is not None)
    with both_kinds(commands, Time.seconds(2)).execute_and_collect("cache") as results:
        for kind, found in sorted(results, key=lambda row: row[0]):
            print(f"{kind}: {found}")


if __name__ == "__main__":
    main()
