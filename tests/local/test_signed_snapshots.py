"""Jobs that sign what they write, and go on from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.jobs import running_counts
from tests.e2e.ledger import LedgerSink
from tests.e2e.runtimes import END_S, RETAIN, Jobs, failure_of
from tests.e2e.watch import wait_completed
from tests.snapshots.keys import key_in
from tidegate import StreamExecutionEnvironment, fsck
from tidegate.errors import JobSuspended, RestoreRefused

pytestmark = pytest.mark.slow

FORMS = {
    "memory": {},
    "disk": {"state.backend.type": "rocksdb", "execution.state-recovery.from-local": True},
    "changelog": {"state.changelog.enabled": True},
    "incremental": {"execution.checkpointing.incremental": True},
    "merged and unaligned": {
        "execution.checkpointing.file-merging.enabled": True,
        "execution.checkpointing.unaligned.enabled": True,
    },
}


def counting(
    jobs: Jobs, folder: Path, key: Path | None, **settings: object
) -> StreamExecutionEnvironment:
    given = {"execution.checkpointing.data-inline-threshold": "0 b", **RETAIN, **settings}
    if key is not None:
        given["tidegate.security.snapshots.key-file"] = str(key)
    env = jobs.checkpointed(2, 100, **given)
    running_counts(env, None, 1_000).sink_to(LedgerSink(folder / "out")).uid("ledger")
    return env


def kept(jobs: Jobs, env: StreamExecutionEnvironment) -> str:
    """The newest checkpoint of a job that has completed three, and was cancelled."""
    client = jobs.start(env, "counts")
    wait_completed(client, 3)
    client.cancel().result(timeout=END_S)
    folders = sorted(jobs.checkpoints.glob("*/chk-*/_metadata"), key=lambda f: f.stat().st_mtime)
    return str(folders[-1].parent)


@pytest.mark.parametrize("form", list(FORMS))
def test_a_job_goes_on_from_what_it_has_signed(jobs: Jobs, tmp_path: Path, form: str) -> None:
    key = key_in(tmp_path / "key")
    settings = FORMS[form]
    first = kept(jobs, counting(jobs, tmp_path, key, **settings))
    assert fsck(first, key_file=key).healthy
    begun = {"execution.state-recovery.path": first, **settings}
    second = kept(jobs, counting(jobs, tmp_path, key, **begun))
    assert second != first and fsck(second, key_file=key).healthy


def test_a_job_with_a_key_starts_from_nothing_that_others_could_write(
    jobs: Jobs, tmp_path: Path
) -> None:
    key = key_in(tmp_path / "key")
    unsigned = kept(jobs, counting(jobs, tmp_path, None))
    begun = {"execution.state-recovery.path": unsigned}
    with pytest.raises(RestoreRefused, match="is not signed"):
        jobs.start(counting(jobs, tmp_path, key, **begun), "counts")
    signed = kept(jobs, counting(jobs, tmp_path, key))
    begun = {"execution.state-recovery.path": signed}
    other = key_in(tmp_path / "other", "another key, another key")
    with pytest.raises(RestoreRefused, match="not signed with this key"):
        jobs.start(counting(jobs, tmp_path, other, **begun), "counts")
    files = [file for file in Path(signed).iterdir() if file.name != "_metadata"]
    largest = max(files, key=lambda file: file.stat().st_size)
    data = largest.read_bytes()
    largest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    failure = failure_of(jobs.start(counting(jobs, tmp_path, key, **begun), "counts"))
    assert isinstance(failure, JobSuspended) and "not as it was written" in str(failure)


def test_a_forged_checkpoint_is_refused(jobs: Jobs, tmp_path: Path) -> None:
    key = key_in(tmp_path / "key")
    signed = Path(kept(jobs, counting(jobs, tmp_path, key)))
    metadata = signed / "_metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"counts", b"countz"))
    begun = {"execution.state-recovery.path": str(signed)}
    with pytest.raises(RestoreRefused, match="was changed since"):
        jobs.start(counting(jobs, tmp_path, key, **begun), "counts")
