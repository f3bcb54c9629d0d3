"""Holds the contracts of .importlinter for the rooms that there are.

import-linter refuses a contract that names a module which does not exist. Rooms come one by one, so
those that are missing are left out here, and said; a contract that is left without a source falls
away. Once all rooms stand, plain `lint-imports` does the same.
"""

import configparser
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE_LISTS = ("source_modules", "forbidden_modules", "allowed_importers")


def main() -> int:
    """Exit status 0 where every contract that can be asked is kept."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter", encoding="utf-8")
    missing: set[str] = set()
    for name in contracts.sections():
        for option in MODULE_LISTS:
            named = contracts.get(name, option, fallback="").split()
            there = [module for module in named if exists(module)]
            missing |= set(named) - set(there)
            if named:
                contracts.set(name, option, "\n" + "\n".join(there))
        if any(contracts.get(name, option, fallback="-").strip() == "" for option in MODULE_LISTS):
            contracts.remove_section(name)
    if missing:
        print(f"contracts: not there yet: {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        present = Path(folder) / "importlinter.ini"
        with present.open("w", encoding="utf-8") as file:
            contracts.write(file)
        command = [str(Path(sys.executable).with_name("lint-imports")), "--config", str(present)]
        return subprocess.run(command, cwd=ROOT).returncode


def exists(module: str) -> bool:
    """Whether a room of ours exists; a module of others is taken on trust."""
    if not module.startswith("tidegate"):
        return True
    path = ROOT / "src" / Path(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


if __name__ == "__main__":
    sys.exit(main())
