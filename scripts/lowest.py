"""Runs the quick tests against the lowest versions of the dependencies that pyproject.toml allows.

An environment in build/lowest gets each dependency, those of the extras too, in exactly its lowest
version. What they need in turn is as pip finds it. Spark is left out, since no quick test needs it.
Run it after raising or adding a dependency:

    .venv/bin/python scripts/lowest.py [arguments of pytest]
"""

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORMAT = ROOT / "packages" / "flinkformat"
ENVIRONMENT = ROOT / "build" / "lowest"
PYTHON = ENVIRONMENT / "bin" / "python"

REQUIREMENT = re.compile(r"^([\w-]+)(?:\[[\w,]+\])?>=([\w.]+)")
LEFT_OUT = {"all", "demo", "dev", "spark"}
"""Extras that are made of others, that a user never installs, or that the quick tests never use."""


def main() -> int:
    """Make the environment, run the tests in it, and say with which versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    extras = [name for name in optional if name not in LEFT_OUT]
    needed = [requirement for name in extras for requirement in optional[name]]
    lowest = lowest_versions([*project["dependencies"], *needed])
    constraints = ENVIRONMENT / "constraints.txt"
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in lowest.items()))
    tools = [each for each in optional["dev"] if "pytest" in each]
    install = ["-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    # One after the other: of a version that is not there, pip would blame the tools for an hour.
    for wanted in (
        ["--editable", f"{FORMAT}", "--editable", f"{ROOT}[{','.join(extras)}]"],
        ["hypothesis", "psutil", *tools],
    ):
        if exit_code := run(*install, *wanted):
            return exit_code
    print("\n".join(f"{name} {version}" for name, version in sorted(lowest.items())))
    quick = ["-m", "not slow and not spark", "--hypothesis-profile=quick", "-p", "no:cacheprovider"]
    arguments = sys.argv[1:] or ["tests", "--ignore=tests/house", "--ignore=tests/spark"]
    return run("-m", "pytest", "-q", *quick, *arguments)


def lowest_versions(requirements: list[str]) -> dict[str, str]:
    """The lowest version of each package, by its name."""
    found = (REQUIREMENT.match(requirement) for requirement in requirements)
    return {match[1]: match[2] for match in found if match}


def run(*arguments: str) -> int:
    """Run the environment's Python; its exit code."""
    return subprocess.run([PYTHON, *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
