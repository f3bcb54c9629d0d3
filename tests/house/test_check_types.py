"""Types are checked anew of a module whose text changed, and of all that reach it."""

from pathlib import Path

from scripts.check_types import digests, sources

CHAIN = {"a": "from b import (\n    B,\n)\n", "b": "import c.d\n", "c": "", "c.d": "", "e": ""}


def stale(changed: str, text: str) -> set[str]:
    texts = {module: {Path(module): text} for module, text in CHAIN.items()}
    before = digests(texts)
    texts[changed][Path(changed)] = text
    return {module for module, digest in digests(texts).items() if digest != before[module]}


def test_a_change_reaches_those_that_import_it_directly_or_not() -> None:
    assert stale("c.d", "D = 1\n") == {"a", "b", "c.d"}
    assert stale("a", "") == {"a"}
    assert stale("e", "from c import d\n") == {"e"}


def test_a_stub_belongs_to_its_module() -> None:
    files = sources()["tidegate"]
    assert {path.name for path in files} == {"__init__.py", "__init__.pyi"}
