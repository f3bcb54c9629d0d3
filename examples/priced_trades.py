"""Each trade once, with the quote that held when it was made: ready steps, and no class.

Trades are sent again now and then. A quote counts for five seconds.
"""

from tidegate import StreamExecutionEnvironment, Types, WatermarkStrategy

TRADES = [
    ("t1", "ACME", 10, 2_000),
    ("t2", "ACME", 5, 4_500),
    ("t1", "ACME", 10, 2_000),
    ("t3", "BOLT", 7, 5_000),
    ("t4", "ACME", 1, 12_000),
]
"""Id, symbol, number of shares, and time in milliseconds."""

QUOTES = [("ACME", 1.5, 1_000), ("ACME", 1.75, 4_000), ("BOLT", 20.0, 5_001)]
"""Symbol, price, and time in milliseconds."""

HELD = "5 s"


def in_order(rows):
    """The rows with their time, which is their last field."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda row, before: row[-1]
    )
    return rows.assign_timestamps_and_watermarks(strategy).set_parallelism(1)


def priced(trades, quotes):
    """Trade and worth; None where no quote held. The arguments: streams as TRADES and QUOTES."""
    once = in_order(trades).key_by(lambda trade: trade[0], Types.STRING()).deduplicate("1 h")
    by_symbol = once.uid("once").key_by(lambda trade: trade[1], Types.STRING())
    quoted = in_order(quotes).key_by(lambda quote: quote[0], Types.STRING())
    return by_symbol.as_of_join(quoted, tolerance=HELD).uid("priced").map(worth)


def worth(pair):
    """The trade's id, with what it was worth."""
    trade, quote = pair
    return trade[0], None if quote is None else trade[2] * quote[1]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    trades = env.from_collection(TRADES).uid("trades")
    quotes = env.from_collection(QUOTES).uid("quotes")
    with priced(trades, quotes).collect("priced trades") as found:
        for trade, amount in found:
            print(trade, "has no quote" if amount is None else f"is worth {amount:g}")


if __name__ == "__main__":
    main()
