"""What parallel writers have prepared is committed by one, once a checkpoint."""

import pytest

from tests.e2e.global_commits import check_one_committer_for_all
from tests.e2e.runtimes import Jobs

pytestmark = pytest.mark.slow


@pytest.mark.feature("F284")
@pytest.mark.parametrize("unaligned", [False, True])
def test_one_committer_gets_all_that_a_checkpoint_has(jobs: Jobs, unaligned: bool) -> None:
    setting = {"execution.checkpointing.unaligned.enabled": unaligned}
    check_one_committer_for_all(jobs, 2, overtaking=unaligned, **setting)
