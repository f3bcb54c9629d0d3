"""Prints what PyFlink's modules give, for tests/pyflink/surface.tsv; run by a Python with PyFlink.

A line for each public class in each module: the module, the class (nested ones after a dot), and
how many type parameters it takes in brackets.
"""

import importlib
import inspect
import pkgutil
from types import ModuleType

ROOMS = ("pyflink.common", "pyflink.datastream", "pyflink.metrics")


def main() -> None:
    print("module", "name", "parameters", sep="\t")
    for module in modules():
        for name in names(module):
            found = getattr(module, name)
            line(module, name, found)
            for inner, nested in vars(found).items():
                if inspect.isclass(nested) and not inner.startswith("_"):
                    line(module, f"{name}.{inner}", nested)


def modules() -> list[ModuleType]:
    """All modules of the rooms, without tests, by name."""
    found: set[str] = set(ROOMS)
    for room in map(importlib.import_module, ROOMS):
        walked = pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
        found |= {each.name for each in walked if ".tests" not in each.name}
    return [importlib.import_module(name) for name in sorted(found)]


def names(module: ModuleType) -> list[str]:
    exported = set(getattr(module, "__all__", ()))
    if hasattr(module, "__path__"):
        return sorted(exported)
    own = {
        name
        for name, found in vars(module).items()
        if inspect.isclass(found) and found.__module__ == module.__name__
    }
    return sorted(name for name in own | exported if not name.startswith(("_", "Internal")))


def line(module: ModuleType, name: str, found: object) -> None:
    """One line of the table."""
    print(module.__name__, name, len(getattr(found, "__parameters__", ())), sep="\t")


if __name__ == "__main__":
    main()
