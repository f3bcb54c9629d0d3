"""Every seed that ever failed, and what was wrong; each is run again with each `make test`.

A seed finds its fault again only while runs are drawn as they were; so each fault is planted in
tests/mutants too, or has a test of its own.
"""

FAILED: dict[int, str] = {
    19: "an unaligned checkpoint never completed behind an edge that is aligned by force",
    25: "the same, with one slot",
    1402: "a slot ended while in-flight data were still being written",
    20093: "two completions at once committed twice, and the subtask failed",
    20287: "at least once, a subtask ended before its producer, and no driver could take over",
    50519: "a file of in-flight data was left when its subtasks had failed meanwhile",
    1000585: "the same, when another slot had died while it was being written",
    1000124: "of many checkpoints given up behind a partition the oldest were taken all the same",
    1001306: "a job that had finished could be gone on with from the snapshot it was started from",
    2001984: "the same",
    1004192: "the same, exactly once",
    2000530: "an abort that came late ended the in-flight data of the next checkpoint: rows lost",
    2116: "the simulator broke the deletion of files while it had laid a trap",
    7130190: "the simulator lost word of a failure whose error is named as a message is",
    7101608: "a driver died between a job's first record and the snapshot it was to start from",
    338: "a newer base of a changelog took the log from a checkpoint that was being encoded",
    415: "a snapshot that was encoded for the next one's sake never ended, for it was held up",
    7000012: "the simulator took a job for stopped that had gone on after its stop",
    5558: "the simulator took event time for over when the last number had come",
    5980: "the same, at least once",
    5211: "the simulator took a failed attempt for living until its last write had returned",
    20049: "the simulator took the failure of a stop for a failure for nothing",
    20989: "the simulator asked a driver that stood still for its answer",
    25415: "the simulator missed the deletion of a file whose writer was killed at once",
    28214: "a job that had started from a snapshot it still kept did not sweep at its end",
    30513: "the simulator took it for a fault that who hears of a decline is heard first",
    1700130: "a stop survived a failover while its id was being taken, and never ended",
}

UNHEARD_FAILED: dict[int, str] = {
    345: "a newer base of a changelog took the log from a checkpoint that was being encoded",
    377: "the simulator wanted a cancelled attempt that waited for its last write to hear more",
}
"""The same for runs that are stopped, and of which a subtask does not hear that they were."""

ENDS_FAILED: dict[int, str] = {
    72: "whoever suspended a job twice left an error behind that nobody looked at",
    128: "a stop was never answered whose savepoint became durable while the job was suspended",
    278: "the simulator began a job anew that its driver, thought dead, had finished",
    5589: "the simulator took a savepoint for a checkpoint that the next job has completed",
}
"""The same for runs whose job people end, and go on with."""

CALLS_AND_ENDS_FAILED: dict[int, str] = {
    6001071: "slow calls waited for checkpoints that came one upon the other, and never began",
    487218772: "subtasks ended behind a savepoint that was complete after another had failed",
    31700362: "the simulator took a job for begun whose driver died before its first record",
    8880035: "the simulator named a damaged snapshot that nobody mends, again and again",
    93008552: "the simulator expected the newest of two drivers that begin at once to lead",
    31700013: "a stop survived a failover while its id was being taken, and never ended",
}
"""The same for runs in which calls take time, too."""

SURVIVORS_FAILED: dict[int, str] = {
    5060: "the simulator took strands with attempts of one number for deployed together",
}
"""The same for runs in which slots are lost again and again as well, and others take over."""
