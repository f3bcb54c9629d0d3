"""Runs pyright on what may have other types than when it was last found right.

python scripts/check_types.py · with ``all``: on every module, whatever was found before

What pyright says of a module follows from its text, and from all that it imports, directly or not.
build/types.json keeps a digest of these for each module that had no fault.
"""

import hashlib
import json
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "build" / "types.json"
ROOTS = (ROOT / "src", ROOT / "packages/flinkformat/src", ROOT)
CHECKED = (ROOTS[0], ROOTS[1], ROOT / "examples/demo")
IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]+)\s+import\s+(\([^)]*\)|.*)|import\s+([\w.]+))", re.MULTILINE
)


def main() -> int:
    texts = sources()
    now = digests(texts)
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() and sys.argv[1:] != ["all"] else {}
    stale = [module for module in texts if known.get(module) != now[module]]
    if not stale:
        print(f"types of {len(texts)} modules are as they were found right")
        return 0
    files = [str(path) for module in stale for path in texts[module]]
    command = [str(Path(sys.executable).with_name("pyright"))]
    run = subprocess.run(command + (files if len(stale) < len(texts) else []), cwd=ROOT)
    if run.returncode == 0:
        KNOWN.parent.mkdir(exist_ok=True)
        KNOWN.write_text(json.dumps(now))
    return run.returncode


def sources() -> dict[str, dict[Path, str]]:
    """Of each module its file, and its stub if it has one, with their texts."""
    found: dict[str, dict[Path, str]] = {}
    for folder in CHECKED:
        for path in sorted(folder.rglob("*.py*")):
            if path.suffix in (".py", ".pyi"):
                found.setdefault(name_of(path), {})[path] = path.read_text(encoding="utf-8")
    return found


def name_of(path: Path) -> str:
    root = next(root for root in ROOTS if root in path.parents)
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def digests(texts: dict[str, dict[Path, str]]) -> dict[str, str]:
    """Of each module, over it and all that it reaches, the settings and installed packages."""
    imports = {module: set[str]() for module in texts}
    for module, files in texts.items():
        for source, names, plain in (
            each for text in files.values() for each in IMPORT.findall(text)
        ):
            inner = {f"{source}.{name}" for name in re.findall(r"\w+", names)}
            imports[module] |= ({source, plain} | inner) & texts.keys()
    own = {module: digest_of(*files.values()) for module, files in texts.items()}
    versions = sorted(f"{each.name} {each.version}" for each in distributions())
    around = digest_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"), *versions)
    return {
        module: digest_of(around, *(own[each] for each in sorted(reached(module, imports))))
        for module in texts
    }


def reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    """The module, and all that it imports, directly or not."""
    found, left = {module}, [module]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left += new
    return found


def digest_of(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
