"""Makes the stubs by which type checkers and editors see the names of ``tidegate.faces``.

``make check`` holds them to the table; ``.venv/bin/python scripts/stubs.py`` makes them anew.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tidegate import __version__, faces

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tidegate"
RUFF = Path(sys.executable).with_name("ruff")


def main() -> int:
    """Write all stubs and say which."""
    for path, text in stubs():
        path.write_text(text, encoding="utf-8")
        print(f"stubs: {path.relative_to(ROOT)}")
    return 0


def stubs() -> Iterator[tuple[Path, str]]:
    """Each stub with the text that it should have; ``tidegate.errors`` needs none."""
    yield PACKAGE / "__init__.pyi", tidy(stub(faces.ROOT))
    for topic in faces.TOPICS:
        if topic != "errors":
            folder = PACKAGE / topic
            path = folder / "__init__.pyi" if folder.is_dir() else PACKAGE / f"{topic}.pyi"
            yield path, tidy(stub(f"{faces.ROOT}.{topic}"))


def stub(module: str) -> str:
    """Imports of all names of a module, and assignments of those that have another name there."""
    imports = ["from typing import Final"] if module == faces.ROOT else []
    renamed = [f'__version__: Final = "{__version__}"'] if module == faces.ROOT else []
    places = faces.places(module)
    for name, (home, attribute) in places.items():
        first = attribute.partition(".")[0]
        if attribute == name:
            imports.append(f"from {home} import {name} as {name}")
            continue
        if places.get(first) != (home, first):
            imports.append(f"from {home} import {first}")
        renamed.append(f"{name} = {attribute}")
    return "\n".join([*imports, *renamed]) + "\n"


def tidy(text: str) -> str:
    """The text as the formatter leaves it."""
    for command in ("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet"):
        run = subprocess.run(
            [RUFF, *command, "--stdin-filename", PACKAGE / "stub.pyi", "-"],
            input=text,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = run.stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
