"""Series under which each alarm has to ring, and others under which it has to be silent."""

from dataclasses import dataclass

JOB = '{job_id="1", job_name="orders"}'
STEP = '{job_name="orders", task_name="count", operator_name="count", subtask_index="0"}'
OTHER = '{job_name="orders", task_name="count", operator_name="count", subtask_index="1"}'
SLOT = '{host="here", tm_id="one"}'
OF_JOB = "flink_jobmanager_job_"
OF_TASK = "flink_taskmanager_job_task_"
OF_STEP = "flink_taskmanager_job_task_operator_"
MEMORY = f"flink_taskmanager_Status_Process_Memory_Resident{SLOT}"
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Case:
    """Values of series, one a minute, in promtool's notation. rings: at that minute, if at all."""

    alarm: str
    series: dict[str, str]
    minute: int
    rings: bool


def both(
    alarm: str, minute: int, ringing: dict[str, str], silent: dict[str, str]
) -> tuple[Case, Case]:
    """The alarm with series that make it ring, and with some that do not."""
    return Case(alarm, ringing, minute, True), Case(alarm, silent, minute, False)


def checkpoints(began: str, completed: str, restored: str = "-1x40") -> dict[str, str]:
    return {
        f"{OF_JOB}totalNumberOfCheckpoints{JOB}": began,
        f"{OF_JOB}numberOfCompletedCheckpoints{JOB}": completed,
        f"{OF_JOB}lastCheckpointRestoreTimestamp{JOB}": restored,
    }


def waiting(first: str, second: str) -> dict[str, str]:
    """What two subtasks of a source have not read."""
    name = f"{OF_STEP}pendingRecords"
    return {f"{name}{STEP}": first, f"{name}{OTHER}": second}


def of(name: str, place: str, values: str) -> dict[str, str]:
    return {f"{name}{place}": values}


CASES = (
    *both(
        "TidegateJobNotRunning",
        8,
        of(f"{OF_JOB}uptime", JOB, "1 60000 120000 -1x10"),
        of(f"{OF_JOB}uptime", JOB, "1 -1 60000+60000x10"),
    ),
    *both(
        "TidegateJobRestarts",
        14,
        of(f"{OF_JOB}numRestarts", JOB, "0x9 3x10"),
        of(f"{OF_JOB}numRestarts", JOB, "0x9 1x10"),
    ),
    *both(
        "TidegateJobGone",
        16,
        of(f"{OF_JOB}uptime", JOB, "1x12 stale") | of("up", "{}", "1x20"),
        of(f"{OF_JOB}uptime", JOB, "1x20"),
    ),
    *both(
        "TidegateCheckpointsFail",
        14,
        of(f"{OF_JOB}numberOfFailedCheckpoints", JOB, "0+1x20"),
        of(f"{OF_JOB}numberOfFailedCheckpoints", JOB, "0x5 1x20"),
    ),
    *both(
        "TidegateCheckpointOld",
        20,
        of(f"{OF_JOB}lastCheckpointCompletedTimestamp", JOB, f"{MINUTE_MS}x25"),
        of(f"{OF_JOB}lastCheckpointCompletedTimestamp", JOB, f"{MINUTE_MS}+{MINUTE_MS}x25"),
    ),
    Case(
        "TidegateCheckpointOld",
        of(f"{OF_JOB}lastCheckpointCompletedTimestamp", JOB, "-1x40"),
        30,
        rings=False,
    ),
    *both(
        "TidegateNoCheckpointYet",
        25,
        checkpoints("1+1x40", "0x40"),
        checkpoints("1+1x40", "0x4 1+1x40"),
    ),
    Case(
        "TidegateNoCheckpointYet",
        checkpoints("1+1x40", "0x40", restored=f"{MINUTE_MS}x40"),
        25,
        rings=False,
    ),
    *both(
        "TidegateBackPressure",
        20,
        of(f"{OF_TASK}backPressuredTimeMsPerSecond", STEP, "900x30"),
        of(f"{OF_TASK}backPressuredTimeMsPerSecond", STEP, "900x9 100 900x20"),
    ),
    *both(
        "TidegateSourceFallsBehind",
        50,
        waiting("20000+1000x60", "5000x60"),
        waiting("90000-1000x60", "5000x60"),
    ),
    Case("TidegateSourceFallsBehind", waiting("0+1x60", "0x60"), 50, rings=False),
    *both(
        "TidegateEventTimeLags",
        15,
        of(f"{OF_STEP}watermarkLag", STEP, "400000x20"),
        of(f"{OF_STEP}watermarkLag", STEP, "4000x20"),
    ),
    *both(
        "TidegateDeadLetters",
        10,
        of(f"{OF_STEP}numDeadLetters", STEP, "0x5 3x20"),
        of(f"{OF_STEP}numDeadLetters", STEP, "3x20"),
    ),
    *both(
        "TidegateRowsUnreadable",
        10,
        of(f"{OF_STEP}numRecordsInErrors", STEP, "0x5 3x20"),
        of(f"{OF_STEP}numRecordsInErrors", STEP, "3x20"),
    ),
    *both(
        "TidegateRowsLate",
        20,
        of(f"{OF_STEP}numLateRecordsDropped", STEP, "0+1x30"),
        of(f"{OF_STEP}numLateRecordsDropped", STEP, "5x30"),
    ),
    *both("TidegateSlotMemory", 8, {MEMORY: "5e9x20"}, {MEMORY: "3e9x20"}),
    *both("TidegateSlotMemoryGrows", 60, {MEMORY: "2e9+2e7x90"}, {MEMORY: "2e9+1e5x90"}),
    *both(
        "TidegateStateOnDiskStalls",
        5,
        of(f"{OF_STEP}rocksdb_is_write_stopped", STEP, "1x20"),
        of(f"{OF_STEP}rocksdb_is_write_stopped", STEP, "0x20"),
    ),
    *both(
        "TidegateStateOnDiskFails",
        5,
        of(f"{OF_STEP}rocksdb_background_errors", STEP, "0x2 1x20"),
        of(f"{OF_STEP}rocksdb_background_errors", STEP, "0x20"),
    ),
)
