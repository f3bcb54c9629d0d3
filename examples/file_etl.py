"""Cleans files: CSV lines in; a Parquet folder for each day out, and broken lines put aside.

    python examples/file_etl.py --keep /tmp/sales    # leaves what it has read and written there

Part files appear when the checkpoint that covers them is complete, so whoever reads the folders
sees each row once, whatever fails on the way.
"""

import argparse
import datetime
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate import OutputTag, ProcessFunction, StreamExecutionEnvironment
from tidegate.connectors import FileSink, FileSource

DAYS = [f"2024-03-{day:02}" for day in range(1, 8)]
SALES = pa.schema([("day", pa.string()), ("product", pa.string()), ("cents", pa.int64())])
BROKEN = OutputTag("broken lines")


class Parse(ProcessFunction):
    """A sale for each line; what is none goes aside as it is."""

    def process_element(self, value, ctx):
        try:
            day, product, cents = value.split(",")
            datetime.date.fromisoformat(day)
            yield {"day": day, "product": product, "cents": int(cents)}
        except ValueError:
            yield BROKEN, {"line": value}


def clean(env, source, output):
    """source: of lines. output: the folder that gets a folder for each of DAYS, and "broken"."""
    sales = env.from_source(source, None, "lines").uid("lines").process(Parse()).uid("parse")
    for day in DAYS:
        of_day = sales.filter(lambda sale, day=day: sale["day"] == day)
        of_day.sink_to(FileSink.parquet(str(output / f"day={day}"), SALES)).uid(f"sales {day}")
    broken = sales.get_side_output(BROKEN)
    broken.sink_to(FileSink.json(str(output / "broken"))).uid("broken")


def write_lines(folder, files=4, lines=500):
    """Lines as they come from the shops; every 97th is broken in one of three ways."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        with (folder / f"shop-{file}.csv").open("w") as output:
            for line in range(lines):
                number = file * lines + line
                day, product, cents = DAYS[number % 7], f"p{number % 5}", str(number * 13 % 1_000)
                if number % 97 == 0:
                    damaged = [f"{day},{product}", f"someday,{product},{cents}", f"{day},,no"]
                    print(damaged[number % 3], file=output)
                else:
                    print(day, product, cents, sep=",", file=output)


def run(folder):
    write_lines(folder / "in")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(500)
    clean(env, FileSource.text(str(folder / "in")), folder / "out")
    env.execute("file etl")
    for day in sorted((folder / "out").glob("day=*")):
        cents = [cent for part in day.glob("[!.]*") for cent in pq.read_table(part)["cents"]]
        print(f"{day.name}: {len(cents)} sales, {sum(cent.as_py() for cent in cents)} cents")
    parts = (folder / "out" / "broken").glob("[!.]*")
    print(sum(len(part.read_text().splitlines()) for part in parts), "broken lines")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    arguments = parser.parse_args()
    if arguments.keep:
        run(arguments.keep)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder))


if __name__ == "__main__":
    main()
