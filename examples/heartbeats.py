"""Which devices are offline, by the wall clock: nobody has to send anything to find out.

Three devices send ten times a second; one of them falls silent for three seconds, and is back.
"""

from tidegate import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

DEVICES = ["d1", "d2", "d3"]
SILENT, SILENT_FROM, SILENT_TO = "d2", 20, 50
"""Which device is silent, and from which of its beats to which."""


class Watch(KeyedProcessFunction):
    """Says when a device goes offline, and when it is online again."""

    def __init__(self, offline_after_ms):
        self.offline_after_ms = offline_after_ms

    def open(self, runtime_context):
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))
        self.offline = runtime_context.get_state(ValueStateDescriptor("offline", Types.BOOLEAN()))

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        if self.due.value() is not None:
            timers.delete_processing_time_timer(self.due.value())
        due = timers.current_processing_time() + self.offline_after_ms
        self.due.update(due)
        timers.register_processing_time_timer(due)
        if self.offline.value():
            self.offline.clear()
            yield "online", value

    def on_timer(self, timestamp, ctx):
        self.due.clear()
        self.offline.update(True)
        yield "offline", ctx.get_current_key()


def beats(total):
    """The beats of all devices in turn, None where one is silent."""
    devices = len(DEVICES)
    for beat in range(total):
        number, device = beat // devices, DEVICES[beat % devices]
        yield None if device == SILENT and SILENT_FROM <= number < SILENT_TO else device


def outages(heartbeats, offline_after_ms=1_000):
    """heartbeats: a stream of the names of devices; None is a device that is silent."""
    alive = heartbeats.filter(lambda device: device is not None)
    keyed = alive.key_by(lambda device: device, Types.STRING())
    return keyed.process(Watch(offline_after_ms)).uid("watch")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    sent = list(beats(180))
    heartbeats = env.generate(lambda n: sent[n], len(sent), rate=30).set_parallelism(1).uid("beats")
    with outages(heartbeats).execute_and_collect("heartbeats") as results:
        for what, device in results:
            print(f"{device} is {what}")


if __name__ == "__main__":
    main()
