"""A job of which one function takes four fifths of the time, measured by what it computes."""

from tidegate import KeyedProcessFunction, StreamExecutionEnvironment, ValueStateDescriptor

ROUNDS = 100_000
"""Some 5 ms: a thread that looks on is let in after as long, and at each end of shorter work."""


def burn() -> int:
    total = 0
    for each in range(ROUNDS):
        total += each * each
    return total


def dear(number: int) -> int:
    return number + sum((burn(), burn(), burn(), burn())) % 1


def cheap(number: int) -> int:
    return number + burn() % 1


def nobody(number: int) -> bool:
    return number < 0


def burned(env: StreamExecutionEnvironment) -> None:
    """Numbers through both functions, in one chain, as fast as it goes; none comes out."""
    numbers = env.generate(int).uid("numbers").name("numbers")
    numbers.map(dear).name("dear step").map(cheap).name("cheap step").filter(nobody).print()


CITIES = ("amsterdam",) * 4 + ("lima", "oslo")


class Burns(KeyedProcessFunction):
    """Takes as long for each row."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value, ctx):
        self.last.update(burn())
        return []


def one_hot_key(env: StreamExecutionEnvironment) -> None:
    """Rows of which two in three have one key, in a step of its own."""
    numbers = env.generate(lambda n: CITIES[n % len(CITIES)]).uid("numbers").name("numbers")
    numbers.key_by(str).process(Burns()).uid("by-city").name("by city").print()
