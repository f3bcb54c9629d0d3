"""PyFlink's surface, call by call: each is there, and a test says what it does.

``pyflink.tsv`` has a line for each class and call of PyFlink 2.3 that is wanted: its tier, its
place in `tidegate`, and the test. A test counts where it names the call, itself or in what it uses.
"""

import ast
import re
from functools import cache
from pathlib import Path

import tidegate
from tests.house.pyflink_surface import LINES
from tests.house.source import ROOT
from tidegate import connectors

TESTS = ROOT / "tests"
NAMED = "named: its members have tests of their own"


THERE = [line for line in LINES if not line["test"].startswith("absent: ")]


def at(place: str) -> bool:
    """Whether a class, or a member of one, is there."""
    name, _, member = place.partition(".")
    found = getattr(tidegate, name, None) or getattr(connectors, name, None)
    return found is not None and (not member or hasattr(found, member))


class Definitions:
    """What a module of tests defines, and from where it takes what it does not."""

    def __init__(self, path: Path) -> None:
        self.used: dict[str, set[str]] = {}
        self.words: dict[str, set[str]] = {}
        self.imported: dict[str, tuple[Path, str]] = {}
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                module = ROOT / f"{(node.module or '').replace('.', '/')}.py"
                if module.exists():
                    for each in node.names:
                        self.imported[each.asname or each.name] = module, each.name
            for name in names_of(node):
                text = ast.unparse(node)
                self.used[name] = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                self.words[name] = set(re.findall(r"\w+", text))


def names_of(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [each.id for each in node.targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


@cache
def definitions(path: Path) -> Definitions:
    return Definitions(path)


@cache
def words_of(test: str) -> set[str]:
    """All words of a test and of what it uses; none where there is no such test."""
    file, _, name = test.partition("::")
    path = TESTS / file
    if not path.exists() or name not in definitions(path).words:
        return set()
    found, seen, left = set[str](), set[tuple[Path, str]](), [(path, name)]
    while left:
        place = left.pop()
        if place in seen:
            continue
        seen.add(place)
        module, of = definitions(place[0]), place[1]
        if of in module.words:
            found |= module.words[of]
            left += [(place[0], used) for used in module.used[of]]
        elif of in module.imported:
            left.append(module.imported[of])
    return found


def test_each_line_stands_once() -> None:
    rows = [line["row"] for line in LINES]
    assert len(rows) == len(set(rows))
    assert {line["tier"] for line in LINES} == {"1", "2"}


def test_each_call_is_where_the_table_says() -> None:
    assert [line["here"] for line in THERE if not at(line["here"])] == []


def test_what_the_table_says_is_absent_is_absent() -> None:
    absent = [line for line in LINES if line not in THERE]
    assert [line["row"] for line in absent if line["here"] or at(line["row"])] == []


def test_each_call_is_named_by_its_test() -> None:
    tested = [line for line in THERE if line["test"] != NAMED]
    assert [
        (line["row"], line["test"])
        for line in tested
        if line["here"].rpartition(".")[2] not in words_of(line["test"])
    ] == []


def test_only_classes_are_left_to_their_members() -> None:
    left = [line["here"] for line in THERE if line["test"] == NAMED]
    assert [place for place in left if "." in place] == []
