"""The map of the house names what is there: docs/architecture.md."""

import re
from configparser import ConfigParser

from tests.house.source import ROOT

MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "tidegate"


def test_each_file_that_the_map_names_exists() -> None:
    named = set(re.findall(r"`([\w./-]+/(?:[\w-]+\.\w+)?)`", MAP))
    assert len(named) > 60
    missing = sorted(n for n in named if not ((SOURCE / n).exists() or (ROOT / n).exists()))
    assert missing == []


def test_the_map_has_the_floors_that_the_contract_holds() -> None:
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = contracts["importlinter:contract:rooms"]["layers"].strip().splitlines()
    floors = [re.findall(r"\w+", layer) for layer in layers]
    plan = MAP.split("```text\n")[1].split("```")[0]
    assert [re.findall(r"\w+", floor) for floor in plan.strip().splitlines()] == floors


def test_the_map_says_what_each_room_is_for() -> None:
    told = re.search(r"\| room \|.*?\n\n", MAP, re.DOTALL)
    assert told
    rows = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in told[0].splitlines()[2:] if row]
    rooms = {p.stem for p in SOURCE.iterdir() if p.suffix in {"", ".py"} and p.name[0].islower()}
    assert rooms == {room for row in rows for room in row}
