"""Makes the pages of docs/ that come from the source.

docs/reference/options.md, every option; docs/reference/cli.md, every command; the table of
docs/deviations.md, the defaults that are not Flink's; docs/reference/metrics.md, every metric of
the engine; docs/reference/api.md, every public name. The last is only made; the others are kept in
the repository, and tests/house holds them current.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from textwrap import indent

import click

from tidegate import faces
from tidegate.cli.main import SECTIONS, commands
from tidegate.config.configuration import ALL
from tidegate.config.configuration import TOPICS as OPTIONS_BY_TOPIC
from tidegate.config.option import ConfigOption
from tidegate.telemetry.catalogue import CATALOGUE
from tidegate.telemetry.metrics import Scope

DOCS = Path(__file__).resolve().parent.parent / "docs"
OPTIONS = DOCS / "reference" / "options.md"
COMMANDS = DOCS / "reference" / "cli.md"
DEVIATIONS = DOCS / "deviations.md"
METRICS = DOCS / "reference" / "metrics.md"
API = DOCS / "reference" / "api.md"
BEGIN, END = "<!-- made by make docs: begin -->", "<!-- made by make docs: end -->"
MATTER = {
    "execution.checkpointing.interval": "always: without checkpoints nothing goes on after a kill",
    "execution.checkpointing.dir": "always: where checkpoints lie; each machine has to reach it",
    "parallelism.default": "to the number of cores that the job may hold",
    "state.backend.type": "to rocksdb for state that is larger than memory",
    "execution.checkpointing.incremental": "for state of which little changes between checkpoints",
    "execution.checkpointing.unaligned.enabled": "where steps are slower than their input",
    "execution.checkpointing.tolerable-failed-checkpoints": "above 0 where storage fails at times",
    "restart-strategy.type": "where a job must not be restarted without end",
    "pipeline.dead-letters": "to keep rows at which functions fail, and go on",
    "rest.port": "to look at the job, and to stop it, over HTTP",
}
"""Of each option that most jobs want to think about, when to set it."""

PUBLIC_MODULES = ("tidegate", *(f"tidegate.{topic}" for topic in faces.TOPICS), "tidegate.testing")


def main() -> int:
    """Write all pages and say which."""
    OPTIONS.write_text(options_page(), encoding="utf-8")
    COMMANDS.write_text(commands_page(), encoding="utf-8")
    DEVIATIONS.write_text(deviations_page(), encoding="utf-8")
    METRICS.write_text(metrics_page(), encoding="utf-8")
    API.write_text(api_page(), encoding="utf-8")
    for page in (OPTIONS, COMMANDS, DEVIATIONS, METRICS, API):
        print(f"docs: {page.relative_to(DOCS.parent)}")
    return 0


SCOPES = {
    Scope.JOB: (
        "Job",
        "flink_jobmanager_job_",
        "Labels: `job_id`, `job_name`. REST: `/jobs/:jobid/metrics`.",
    ),
    Scope.TASK_MANAGER: (
        "Slot",
        "flink_taskmanager_",
        "A slot is what Flink calls a task manager. Labels: `host`, `tm_id`. REST: "
        "`/taskmanagers/:id/metrics`.",
    ),
    Scope.TASK: (
        "Subtask",
        "flink_taskmanager_job_task_",
        "Labels: those of job and slot, `task_id`, `task_name`, `subtask_index`, "
        "`task_attempt_num`. REST: `/jobs/:jobid/vertices/:vertexid/metrics`, as `0.numRecordsIn`.",
    ),
    Scope.OPERATOR: (
        "Operator",
        "flink_taskmanager_job_task_operator_",
        "Each step of a chain has its own. Labels: those of the subtask, `operator_id`, "
        "`operator_name`. REST: as subtasks, `0.Filter.numRecordsIn`.",
    ),
}
"""Of each scope a heading, the beginning of names for Prometheus, and a sentence."""


def metrics_page() -> str:
    """Every metric of the engine by scope."""
    head = [
        "# Metrics",
        "",
        "Made from `tidegate.telemetry` by `make docs`. Names are Flink's, but for those that are "
        "marked as ours. [The guide](../guides/metrics.md) tells how to add your own, and how to "
        "report all of them.",
        "",
        "Units are those of OpenTelemetry: `By` bytes, `1` a share, `us` microseconds. A rate is "
        "that of the last 5 s. Counters begin anew with each attempt of a subtask.",
    ]
    scopes = [
        "\n".join(
            [
                "",
                f"## {heading}",
                "",
                f"{sentence} Prometheus: `{prefix}` and the name, with `_` for each dot.",
                "",
                "| name | type | unit | what it is | whose |",
                "|---|---|---|---|---|",
                *(
                    f"| `{each.name}` | {each.kind.value} | {each.unit} | {cell(each.sentence)} | "
                    f"{'ours' if each.ours else 'Flink'} |"
                    for each in CATALOGUE
                    if each.scope is scope
                ),
            ]
        )
        for scope, (heading, prefix, sentence) in SCOPES.items()
    ]
    return "\n".join([*head, *scopes]) + "\n"


def options_page() -> str:
    """Every option with its type, default and sentence, by topic, behind the ten that matter."""
    head = [
        "# Options",
        "",
        "Made from the options of `tidegate.config` by `make docs`. Keys, types and defaults are "
        "Flink's, but for those in [deviations](../deviations.md); keys that begin with "
        "`tidegate.` are ours.",
        "",
        "## The ten that matter",
        "",
        "Most jobs set a few of these and nothing else.",
        "",
        "| key | set it |",
        "|---|---|",
        *(f"| `{key}` | {cell(when)} |" for key, when in MATTER.items()),
    ]
    topics = [
        "\n".join(
            [
                "",
                f"## {topic}",
                "",
                "| key | type | default | what it does |",
                "|---|---|---|---|",
                *map(row, options),
            ]
        )
        for topic, options in OPTIONS_BY_TOPIC.items()
    ]
    return "\n".join([*head, *topics]) + "\n"


def row(option: ConfigOption[object]) -> str:
    """An option as a row of its topic's table."""
    cells = option.type.name, option.default_text, description(option)
    return f"| `{option.key}` | {' | '.join(map(cell, cells))} |"


def description(option: ConfigOption[object]) -> str:
    old = ", ".join(f"`{key}`" for key in option.old_keys)
    return option.description + (f" Also accepted: {old}." if old else "")


def commands_page() -> str:
    """Every command with its arguments and options, in the sections of the help."""
    root = click.Context(commands, info_name="tidegate", **commands.context_settings)
    parts = [
        "# Commands",
        "",
        "`make docs` makes this page from the help of the commands, which `tidegate -h` and "
        "`tidegate COMMAND -h` show in the terminal.",
        "",
        "Exit codes: 0 on success, 2 for a mistake that you can correct, 1 for anything else, 130 "
        "after Ctrl-C. If they mean more for a command, its text says so.",
    ]
    for section, names in SECTIONS.items():
        parts += ["", f"## {section}"]
        for name in names:
            command = commands.get_command(root, name)
            assert command is not None, name
            parts += described_command(click.Context(command, info_name=name, parent=root))
    return "\n".join(parts) + "\n"


def described_command(context: click.Context) -> Iterator[str]:
    """Heading, usage, text and options; of a group its commands too."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ("", f"### {context.command_path}", "", f"    {usage}", "")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        # What the terminal shows as it is.
        laid_out = paragraph.startswith("\b\n")
        yield indent(paragraph.removeprefix("\b\n"), " " * 4) if laid_out else paragraph
        yield ""
    records = [
        record
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    if records:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| `{cell(option)}` | {cell(text)} |" for option, text in records)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from described_command(click.Context(inner, info_name=name, parent=context))


def deviations_page() -> str:
    """The page as it stands, its table of defaults made anew."""
    before, rest = DEVIATIONS.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    rows = [
        f"| `{option.key}` | {cell(option.default_text)} | {cell(option.differs)} |"
        for option in ALL
        if option.differs
    ]
    table = "\n".join(["| key | default here | why it is not Flink's |", "|---|---|---|", *rows])
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def cell(text: str) -> str:
    """Text that a cell of a Markdown table can hold."""
    return text.replace("|", "\\|").replace("\n", " ")


def api_page() -> str:
    """Every public name with its signature and docstring: the first at the top, then by topic."""
    parts = [
        "# API",
        "",
        "`make docs` makes this page from the docstrings. `tidegate` gives every name but those of "
        "connectors and tests. What a first program needs stands at the top, the rest by topic.",
    ]
    first = faces.FIRST.split()
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        parts += ["", f"## {module_name}"]
        at_top = module_name == "tidegate"
        has = set(first if at_top else faces.names(module_name) or module.__all__)
        also = set[str]() if at_top else has & set(first)
        for name in sorted(has - also):
            parts += ["", *described(name, getattr(module, name), level=3)]
        if also:
            parts += ["", f"At the top: {', '.join(f'`{name}`' for name in sorted(also))}."]
    return "\n".join(parts) + "\n"


def described(name: str, thing: object, level: int) -> Iterator[str]:
    """Heading, signature, docstring; of a class its public methods too."""
    yield f"{'#' * level} {name}"
    yield ""
    if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Enum)):
        yield f"`{name}{signature(thing)}`"
        yield ""
    yield inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        for member_name, member in inspect.getmembers(thing):
            own = member_name in vars(thing)
            if own and not member_name.startswith("_") and callable(member):
                yield ""
                yield from described(f"{name}.{member_name}", member, level + 1)


def signature(thing: Callable[..., object]) -> str:
    """The signature as written; empty where Python knows none."""
    try:
        return str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
