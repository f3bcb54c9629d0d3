"""Holds the contracts of .importlinter, and tells which rooms they name that there are not."""

import configparser
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTRACTS = ROOT / ".importlinter"
MODULE_LISTS = ("source_modules", "forbidden_modules", "allowed_importers")


def main() -> int:
    """Exit status 0 where every contract is kept."""
    contracts = configparser.ConfigParser()
    contracts.read(CONTRACTS, encoding="utf-8")
    named = {
        module
        for name in contracts.sections()
        for option in MODULE_LISTS
        for module in contracts.get(name, option, fallback="").split()
    }
    if missing := sorted(module for module in named if not exists(module)):
        print(f"contracts: {CONTRACTS.name} names what there is not: {', '.join(missing)}")
        return 1
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", str(CONTRACTS)]
    return subprocess.run(command, cwd=ROOT).returncode


def exists(module: str) -> bool:
    if not module.startswith("tidegate"):
        return True
    path = ROOT / "src" / Path(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


if __name__ == "__main__":
    sys.exit(main())
