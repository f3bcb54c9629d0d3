"""Payments held against rules: what the last limit does not allow is reported, card by card.

Rules are a stream of their own, which every subtask gets whole and in order. Payments wait in the
state of their card for a timer behind all rules; then the limit in force is the last one.
"""

from tidegate import (
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)

PAYMENTS = [("card1", 80, 1), ("card2", 40, 2), ("card1", 60, 3)]
"""Card, amount, and time in milliseconds."""

RULES = [("limit", 100, 0), ("limit", 50, 10)]
"""What a rule is about, its value, and its time."""

BEHIND_ALL_RULES_MS = 10_000
IN_FORCE = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Judge(KeyedBroadcastProcessFunction):
    """Card and amount of each payment above the limit."""

    def open(self, runtime_context):
        self.held = runtime_context.get_list_state(ListStateDescriptor("held", Types.LONG()))

    def process_element(self, value, ctx):
        _, amount, _ = value
        self.held.add(amount)
        ctx.timer_service().register_event_time_timer(BEHIND_ALL_RULES_MS)

    def process_broadcast_element(self, value, ctx):
        rule, limit, _ = value
        ctx.get_broadcast_state(IN_FORCE).put(rule, limit)

    def on_timer(self, timestamp, ctx):
        limit = ctx.get_broadcast_state(IN_FORCE).get("limit")
        for amount in self.held.get():
            if amount > limit:
                yield ctx.get_current_key(), amount
        self.held.clear()


def frauds(payments, rules):
    """payments, rules: streams as PAYMENTS and RULES are."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, before: row[2]
    )
    timed_payments = payments.assign_timestamps_and_watermarks(in_order).set_parallelism(1)
    timed_rules = rules.assign_timestamps_and_watermarks(in_order).set_parallelism(1)
    by_card = timed_payments.key_by(lambda payment: payment[0], Types.STRING())
    return by_card.connect(timed_rules.broadcast(IN_FORCE)).process(Judge()).uid("judge")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    payments = env.from_collection(PAYMENTS).uid("payments")
    rules = env.from_collection(RULES).uid("rules")
    with frauds(payments, rules).execute_and_collect("fraud rules") as results:
        for card, amount in results:
            print(f"{card} paid {amount}")


if __name__ == "__main__":
    main()
