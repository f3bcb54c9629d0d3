"""Orders and their payments: two streams with one state, in whichever order they come.

The one that comes first waits for the other, up to 10 ms of event time; then a timer reports that
it is alone. Event time waits for both streams, so a payment that is on its way is not missed.
"""

from tidegate import (
    KeyedCoProcessFunction,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

ORDERS = [("o1", 1), ("o2", 2), ("o3", 3)]
PAYMENTS = [("o2", 4), ("o1", 5), ("o4", 6)]
"""Id of the order, and time in milliseconds."""

WAIT_MS = 10


class Match(KeyedCoProcessFunction):
    """What became of each id."""

    def open(self, runtime_context):
        self.ordered = runtime_context.get_state(ValueStateDescriptor("ordered", Types.LONG()))
        self.paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.LONG()))

    def process_element1(self, value, ctx):
        return self.met(value, self.ordered, self.paid, ctx)

    def process_element2(self, value, ctx):
        return self.met(value, self.paid, self.ordered, ctx)

    def met(self, value, mine, other, ctx):
        key, time = value
        if other.value() is None:
            mine.update(time)
            ctx.timer_service().register_event_time_timer(time + WAIT_MS)
        else:
            ctx.timer_service().delete_event_time_timer(other.value() + WAIT_MS)
            other.clear()
            yield "joined", key

    def on_timer(self, timestamp, ctx):
        what = "unpaid" if self.paid.value() is None else "payment without order"
        self.ordered.clear()
        self.paid.clear()
        yield what, ctx.get_current_key()


def matched(orders, payments):
    """orders, payments: streams as ORDERS and PAYMENTS are."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, before: row[1]
    )
    timed_orders = orders.assign_timestamps_and_watermarks(in_order).set_parallelism(1)
    timed_payments = payments.assign_timestamps_and_watermarks(in_order).set_parallelism(1)
    both = timed_orders.connect(timed_payments)
    by_id = both.key_by(lambda order: order[0], lambda payment: payment[0], Types.STRING())
    return by_id.process(Match()).uid("match")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    orders = env.from_collection(ORDERS).uid("orders")
    payments = env.from_collection(PAYMENTS).uid("payments")
    with matched(orders, payments).execute_and_collect("orders and payments") as results:
        for what, order in sorted(results):
            print(f"{order}: {what}")


if __name__ == "__main__":
    main()
