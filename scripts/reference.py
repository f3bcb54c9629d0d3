"""Makes the pages of docs/ that come from the source.

docs/reference/options.md, every option; the table of docs/deviations.md, the defaults that are not
Flink's; docs/reference/api.md, every public name. The first two are kept in the repository, and
tests/house holds them current; the third is only made.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path

from tidegate.config.option import ConfigOption
from tidegate.config.options import ALL

DOCS = Path(__file__).resolve().parent.parent / "docs"
OPTIONS = DOCS / "reference" / "options.md"
DEVIATIONS = DOCS / "deviations.md"
API = DOCS / "reference" / "api.md"
BEGIN, END = "<!-- made by make docs: begin -->", "<!-- made by make docs: end -->"
PUBLIC_MODULES = ("tidegate", "tidegate.connectors")


def main() -> int:
    """Write all pages and say which."""
    OPTIONS.write_text(options_page(), encoding="utf-8")
    DEVIATIONS.write_text(deviations_page(), encoding="utf-8")
    API.write_text(api_page(), encoding="utf-8")
    for page in (OPTIONS, DEVIATIONS, API):
        print(f"docs: {page.relative_to(DOCS.parent)}")
    return 0


def options_page() -> str:
    """Every option with its type, default and sentence, in the order of the source."""
    rows = [
        f"| `{option.key}` | {cell(option.type.name)} | {cell(option.default_text)} "
        f"| {cell(description(option))} |"
        for option in ALL
    ]
    head = [
        "# Options",
        "",
        "Made from `tidegate.config.options` by `make docs`. Keys, types and defaults are Flink's, "
        "but for those in [deviations](../deviations.md); keys that begin with `tidegate.` are "
        "ours.",
        "",
        "| key | type | default | what it does |",
        "|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"


def description(option: ConfigOption[object]) -> str:
    """What the option does and which other spellings are accepted."""
    old = ", ".join(f"`{key}`" for key in option.old_keys)
    return option.description + (f" Also accepted: {old}." if old else "")


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
    """Every public name with its signature and docstring."""
    parts = ["# API", "", "Made from the docstrings by `make docs`."]
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        parts += ["", f"## {module_name}"]
        for name in sorted(getattr(module, "__all__", ())):
            parts += ["", *described(name, getattr(module, name), level=3)]
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
