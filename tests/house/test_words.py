"""Words that have no place in the tree: paths of one machine, hosts of package registries."""

import re

from tests.house.source import ROOT, tracked_files

# Joined from pieces, so that this file does not hold what it looks for.
WORDS = [
    "/" + "work/",
    "/" + "root/",
    "/" + "home/[a-z]",
    "/" + "Users/[a-z]",
    "py" + r"pi\.(org|python)",
    "python" + r"hosted\.org",
    "repo1?" + r"\.maven",
    "registry" + r"\.(npmjs|yarnpkg)",
    "(conda\\.)?" + "anaconda" + r"\.org",
]
FORBIDDEN = re.compile("|".join(WORDS).encode())


def test_no_file_names_this_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in tracked_files()
        if (match := FORBIDDEN.search(path.read_bytes()))
    ]
    assert not found, "\n".join(found)
