"""Faults to plant, one at a time: the simulator has to find them, or the quick tests of a room.

Each replaces one piece of a source file by another. A piece that is not there exactly once is a
mistake of this list, and told as such.
"""

from tests.mutants.protocol import PROTOCOL
from tests.mutants.rest import REST
from tests.mutants.slot import SLOT
from tests.mutants.telemetry import TELEMETRY

MUTANTS = [*PROTOCOL, *SLOT, *REST, *TELEMETRY]
