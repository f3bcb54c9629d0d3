"""A name for what lies in the checkout, so that a result can say which files it is of."""

import hashlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tree_hash(root: Path = ROOT) -> str:
    """Hash of the path and content of each file, those included that are not committed yet.

    Files that git ignores do not count. Without git there is no list of files: the name is then
    "unknown", and equals no other.
    """
    found = listed(root)
    if found is None:
        return "unknown"
    digest = hashlib.sha256()
    for name in found:
        path = root / name
        if path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def listed(root: Path) -> list[str] | None:
    """Names of the files of a checkout, sorted; None where git does not know it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return sorted(set(run.stdout.split("\0")) - {""}) if run.returncode == 0 else None


def changed_since(commit: str, places: tuple[str, ...], root: Path = ROOT) -> bool:
    """True if files below `places` differ from those of `commit`, or if it is no ancestor."""
    ancestor = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    differs = ["git", "diff", "--quiet", commit, "--", *places]
    return any(
        subprocess.run(command, cwd=root, capture_output=True).returncode != 0
        for command in (ancestor, differs)
    )
