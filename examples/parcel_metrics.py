"""Parcels, and what a post office wants to know of them while they pass: metrics of one's own.

Run it, and look at http://localhost:9249/metrics; Ctrl-C ends it. Prometheus' client is an extra:

    pip install 'tidegate[prometheus]'
    tidegate run -D metrics.reporter.prom.factory.class=prometheus examples/parcel_metrics.py
"""

from tidegate import MapFunction, StreamExecutionEnvironment, Types

COUNTRIES = ["nl", "be", "de"]
HEAVY_GRAMS = 20_000


def parcel(number):
    """Country and weight in grams."""
    return COUNTRIES[number % 3], number * 7_919 % 25_000


class Weigh(MapFunction):
    """Counts parcels by country, and those that are too heavy for one pair of hands."""

    def open(self, runtime_context):
        metrics = runtime_context.get_metrics_group()
        self.heavy = metrics.counter("heavy")
        self.weights = {}
        for country in COUNTRIES:
            group = metrics.add_group("country", country)
            self.weights[country] = group.histogram("grams")
        self.last = 0
        metrics.gauge("lastGrams", lambda: self.last)

    def map(self, value):
        country, grams = value
        self.weights[country].update(grams)
        self.last = grams
        if grams > HEAVY_GRAMS:
            self.heavy.inc()
        return value


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    parcels = env.generate(parcel, rate=500).name("parcels").uid("parcels")
    weighed = parcels.map(Weigh(), Types.TUPLE([Types.STRING(), Types.LONG()])).name("weigh")
    weighed.filter(lambda parcel: parcel[1] > 24_990).name("heaviest").print()
    env.execute("parcels")


if __name__ == "__main__":
    main()
