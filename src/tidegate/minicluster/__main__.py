"""One slot process of a local job; started by ``minicluster.processes``."""

from __future__ import annotations

import sys

from tidegate.minicluster.processes import slot_process

if __name__ == "__main__":
    sys.exit(slot_process(sys.stdin.buffer))
