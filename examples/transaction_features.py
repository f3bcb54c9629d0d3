"""Features of users for a model, from their transactions; record by record, and by Arrow batches.

Count, sum, mean and greatest amount of each user: since ever, behind each transaction, and over
the last minute, every ten seconds. Both forms find the same.
"""

from tidegate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    Count,
    KeyedProcessFunction,
    Max,
    Mean,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Sum,
    Time,
    Types,
    WatermarkStrategy,
)

USERS = 100
TRANSACTIONS = [{"user": i % USERS, "amount": i % 17, "time": 10 * i} for i in range(10_000)]
"""User, amount, and time in milliseconds."""

LAST_MINUTE = SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(10))


class Features(AggregateFunction):
    """The features of some transactions, from their count, sum and greatest amount."""

    def create_accumulator(self):
        return 0, 0, 0

    def add(self, value, accumulator):
        count, total, greatest = accumulator
        return count + 1, total + value["amount"], max(greatest, value["amount"])

    def get_result(self, accumulator):
        count, total, greatest = accumulator
        return {
            "count": count,
            "amount_sum": total,
            "amount_mean": total / count,
            "amount_max": greatest,
        }

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1], max(acc_a[2], acc_b[2])


class SinceEver(KeyedProcessFunction):
    """Each transaction with the features of its user so far."""

    def open(self, runtime_context):
        gathered = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
        self.features = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("features", Features(), gathered)
        )

    def process_element(self, value, ctx):
        self.features.add(value)
        yield {**value, **self.features.get()}


class OfWindow(ProcessWindowFunction):
    """The features of a user's window, with its bounds."""

    def process(self, key, context, elements):
        window = context.window()
        for features in elements:
            yield {
                "user": key,
                "window_start": window.start,
                "window_end": window.end,
                **features,
            }


def by_record(transactions):
    """Features since ever, and of the last minute. transactions: a stream as TRANSACTIONS is."""
    keyed = timed(transactions).key_by(lambda each: each["user"], Types.LONG())
    since_ever = keyed.process(SinceEver()).uid("since-ever")
    return since_ever, keyed.window(LAST_MINUTE).aggregate(Features(), OfWindow()).uid(
        "last-minute"
    )


def by_batch(transactions):
    """The same by columns."""
    keyed = timed(transactions).key_by("user", Types.LONG())
    features = Count(), Sum("amount"), Mean("amount"), Max("amount")
    since_ever = keyed.running(*features).uid("since-ever")
    return since_ever, keyed.window(LAST_MINUTE).aggregate_batches(*features).uid("last-minute")


def timed(transactions):
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    return transactions.assign_timestamps_and_watermarks(in_order).set_parallelism(1)


def main():
    found = []
    for form in (by_record, by_batch):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(500)
        since_ever, last_minute = form(env.from_collection(TRANSACTIONS).uid("transactions"))
        with since_ever.union(last_minute).execute_and_collect("features") as results:
            found.append(sorted(results, key=lambda row: sorted(row.items())))
    print(f"{len(found[0])} rows, equal in both forms: {found[0] == found[1]}")
    for user in range(3):
        rows = [row for row in found[0] if row["user"] == user and "time" in row]
        print(max(rows, key=lambda row: row["time"]))


if __name__ == "__main__":
    main()
