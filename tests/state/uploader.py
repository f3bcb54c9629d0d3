"""A process that uploads folders in a test until it is killed.

python -m tests.state.uploader ROOT FOLDER CHECKPOINT · writes "handle" when one is acknowledged
"""

import pickle
import sys
from dataclasses import replace
from pathlib import Path

from flinkformat.key_groups import KeyGroupRange
from tests.state.files_world import EXECUTION, JOB, SETTINGS
from tidegate.model.chance import SeededChance
from tidegate.model.elements import Barrier, CheckpointOptions
from tidegate.model.ids import CheckpointId
from tidegate.state.disk.files import IncrementalFiles
from tidegate.storage.checkpoints import CheckpointStorage

if __name__ == "__main__":
    root, folder = map(Path, sys.argv[1:3])
    storage = CheckpointStorage(JOB, replace(SETTINGS, directory=str(root)))
    files = IncrementalFiles("0" * 8 + "-0000-0000-0000-" + "0" * 12, KeyGroupRange(0, 127))
    draw = SeededChance(7).bits64
    for number in (1, 2):
        barrier = Barrier(CheckpointId(number), 0, CheckpointOptions())
        place = storage.place(barrier, EXECUTION, draw)
        path = folder / f"chk-{number}"
        handle = files.upload(path, barrier.checkpoint, place, shared=True, meta=b"meta")
        (folder / f"acknowledged-{number}").write_bytes(pickle.dumps((handle, place.checksums)))
        files.named.on_complete(barrier.checkpoint)
        print("acknowledged", number, flush=True)
