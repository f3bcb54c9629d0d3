"""Abandoned carts: an alert when a customer has not bought for 30 ms after the last thing added.

Each addition takes back the timer of the one before and sets a new one; buying takes it back for
good. What still waits at the end of the input is alerted then, with the time of its timer.
"""

from tidegate import (
    KeyedProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkGenerator,
    WatermarkStrategy,
)

ACTIONS = [("add", "u1", 0), ("add", "u2", 5), ("buy", "u1", 20), ("add", "u3", 50)]
"""What a customer did, and when, in milliseconds."""

TIMEOUT_MS = 30


class EachRecord(WatermarkGenerator):
    """After each record a watermark at its time."""

    def on_event(self, value, timestamp, output):
        output.emit_watermark(timestamp)


class Alerts(KeyedProcessFunction):
    """Customer and time of each cart that was left alone."""

    def open(self, runtime_context):
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx):
        action, _, _ = value
        timers = ctx.timer_service()
        if self.due.value() is not None:
            timers.delete_event_time_timer(self.due.value())
            self.due.clear()
        if action == "add":
            self.due.update(ctx.timestamp() + TIMEOUT_MS)
            timers.register_event_time_timer(ctx.timestamp() + TIMEOUT_MS)

    def on_timer(self, timestamp, ctx):
        self.due.clear()
        yield ctx.get_current_key(), timestamp


def abandoned(actions):
    """actions: a stream as ACTIONS is."""
    each_record = WatermarkStrategy.for_generator(EachRecord).with_timestamp_assigner(
        lambda action, before: action[2]
    )
    return (
        actions.assign_timestamps_and_watermarks(each_record)
        .set_parallelism(1)
        .key_by(lambda action: action[1], Types.STRING())
        .process(Alerts())
        .uid("alerts")
    )


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    alerts = abandoned(env.from_collection(ACTIONS).uid("actions"))
    with alerts.execute_and_collect("abandoned carts") as results:
        for customer, time in results:
            print(f"{customer} has left a cart alone, at {time} ms")


if __name__ == "__main__":
    main()
