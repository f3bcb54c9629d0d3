"""The three products that sold best in each window of ten milliseconds.

A window sums each product's sales. Its results come together by the window's end, under a timer
just behind it: by then all of them are there, for the watermark follows a window's results.
"""

from tidegate import (
    KeyedProcessFunction,
    MapStateDescriptor,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)

SALES = [("p1", 5, 1), ("p2", 3, 2), ("p3", 9, 4), ("p1", 7, 5), ("p4", 9, 9), ("p2", 8, 12)]
"""Product, amount, and time in milliseconds."""

TOP = 3


class WithEnd(ProcessWindowFunction):
    """A product's sum in a window, with the window's end."""

    def process(self, key, context, elements):
        for _, amount, _ in elements:
            yield context.window().end, key, amount


class Best(KeyedProcessFunction):
    """The best products of a window, once all are known; by name where they sold equally well."""

    def open(self, runtime_context):
        self.sums = runtime_context.get_map_state(
            MapStateDescriptor("sums", Types.STRING(), Types.LONG())
        )

    def process_element(self, value, ctx):
        end, product, amount = value
        self.sums.put(product, amount)
        ctx.timer_service().register_event_time_timer(end + 1)

    def on_timer(self, timestamp, ctx):
        ranked = sorted(self.sums.items(), key=lambda item: (-item[1], item[0]))
        self.sums.clear()
        yield ctx.get_current_key(), ranked[:TOP]


def best_products(sales):
    """sales: a stream as SALES is."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda sale, before: sale[2]
    )
    sums = (
        sales.assign_timestamps_and_watermarks(in_order)
        .set_parallelism(1)
        .key_by(lambda sale: sale[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .reduce(lambda sale, more: (sale[0], sale[1] + more[1], more[2]), WithEnd())
        .uid("sums")
    )
    return sums.key_by(lambda total: total[0], Types.LONG()).process(Best()).uid("best")


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    best = best_products(env.from_collection(SALES).uid("sales"))
    with best.execute_and_collect("top products") as results:
        for end, products in sorted(results):
            print(f"until {end} ms:", ", ".join(f"{name} {sold}" for name, sold in products))


if __name__ == "__main__":
    main()
