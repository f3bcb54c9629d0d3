"""Payments judged as they come, by rules that change meanwhile.

No order holds between payments and rules: a payment that comes before any rule waits in the state
of its card, for the card's next payment or for the end of both streams. So nothing is lost, and
what is above every limit is reported however the streams meet.
"""

from tidegate import (
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StreamExecutionEnvironment,
    Types,
)

PAYMENTS = [(f"card{n % 5}", n * 37 % 150, n) for n in range(60)]
"""Card, amount, and number of the payment."""

RULES = [("limit", 100), ("limit", 50)]

THE_END_MS = 2**63 - 1
IN_FORCE = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
PAYMENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])


class Judge(KeyedBroadcastProcessFunction):
    """The payments above the limit that is in force when they are judged."""

    def open(self, runtime_context):
        self.held = runtime_context.get_list_state(ListStateDescriptor("held", PAYMENT))

    def process_element(self, value, ctx):
        self.held.add(value)
        if ctx.get_broadcast_state(IN_FORCE).contains("limit"):
            yield from self.judged(ctx)
        else:
            ctx.timer_service().register_event_time_timer(THE_END_MS)

    def process_broadcast_element(self, value, ctx):
        rule, limit = value
        ctx.get_broadcast_state(IN_FORCE).put(rule, limit)

    def on_timer(self, timestamp, ctx):
        return self.judged(ctx)

    def judged(self, ctx):
        limit = ctx.get_broadcast_state(IN_FORCE).get("limit")
        yield from [payment for payment in self.held.get() if payment[1] > limit]
        self.held.clear()


def frauds(payments, rules):
    """payments, rules: streams as PAYMENTS and RULES are."""
    by_card = payments.key_by(lambda payment: payment[0], Types.STRING())
    return by_card.connect(rules.broadcast(IN_FORCE)).process(Judge(), PAYMENT).uid("judge")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    payments = env.generate(lambda n: PAYMENTS[n], len(PAYMENTS), rate=60, type_info=PAYMENT)
    rules = env.generate(lambda n: RULES[n], len(RULES), rate=2).set_parallelism(1)
    with frauds(payments.uid("payments"), rules.uid("rules")).execute_and_collect() as results:
        found = sorted(results, key=lambda payment: payment[2])
    for card, amount, number in found:
        print(f"payment {number}: {card} paid {amount}")


if __name__ == "__main__":
    main()
