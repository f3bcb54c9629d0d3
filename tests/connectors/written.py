"""Files that a sink has made visible."""

from pathlib import Path


def visible(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")
    )
