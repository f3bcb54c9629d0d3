"""Keys that Flink 2.3 and older versions read and Tidegate does not.

They are kept, so that configurations carry over; the list tells them from typing errors.
"""

from __future__ import annotations

from typing import Final

_BY_PREFIX: Final = {
    "": "scheduler-mode",
    "classloader.": "resolve-order",
    "env.java.opts.": "all jobmanager taskmanager",
    "execution.checkpointing.": "create-subdir prefer-checkpoint-for-recovery write-buffer-size",
    "execution.checkpointing.cleaner.": "parallel-mode",
    "execution.checkpointing.file-merging.": (
        "across-checkpoint-boundary max-space-amplification max-subtasks-per-file pool-blocking"
    ),
    "execution.checkpointing.unaligned.interruptible-timers.": "enabled",
    "execution.checkpointing.unaligned.recover-output-on-downstream.": "enabled",
    "execution.state-recovery.": "approximate-local-recovery",
    "fs.": "default-scheme",
    "heartbeat.": "rpc-failure-threshold",
    "high-availability.": "storageDir",
    "high-availability.jobmanager.": "port",
    "high-availability.kubernetes.leader-election.": "lease-duration renew-deadline retry-period",
    "high-availability.zookeeper.client.": (
        "max-retry-attempts max-retry-wait retry-wait tolerate-suspended-connections"
    ),
    "high-availability.zookeeper.path.": "applications execution-plans",
    "io.tmp.": "dirs",
    "job-result-store.": "delete-on-commit storage-path",
    "historyserver.archive.": "clean-expired-jobs",
    "historyserver.log.jobmanager.": "url-pattern",
    "historyserver.log.taskmanager.": "url-pattern",
    "historyserver.web.": "address port refresh-interval ssl.enabled",
    "jobmanager.": "bind-host",
    "jobmanager.adaptive-scheduler.": "prefer-minimal-taskmanagers",
    "jobmanager.adaptive-scheduler.executing.": (
        "cooldown-after-rescaling resource-stabilization-timeout"
    ),
    "jobmanager.adaptive-scheduler.submission.": (
        "resource-stabilization-timeout resource-wait-timeout"
    ),
    "jobmanager.execution.": "attempts-history-size",
    "jobmanager.memory.flink.": "size",
    "jobmanager.memory.heap.": "size",
    "jobmanager.memory.process.": "size",
    "jobmanager.rpc.": "address port",
    "metrics.latency.": "granularity history-size interval",
    "pipeline.": "classpaths closure-cleaner-level jars jobvertex-parallelism-overrides",
    "pipeline.operator-chaining.": "chain-operators-with-different-max-parallelism",
    "pipeline.watermark-alignment.": "allow-unaligned-source-splits buffer-size",
    "python.": "archives executable execution-mode pythonpath requirements",
    "python.client.": "executable",
    "python.fn-execution.arrow.batch.": "size",
    "python.fn-execution.bundle.": "size time",
    "python.fn-execution.memory.": "managed",
    "rest.": "await-leader-timeout connection-timeout idleness-timeout path url-prefix",
    "rest.cache.checkpoint-statistics.": "size timeout",
    "rest.cache.execution-graph.": "timeout",
    "rest.client.": "max-content-length",
    "rest.profiling.": "enabled",
    "rest.retry.": "delay max-attempts",
    "rest.server.": "max-content-length numThreads",
    "security.ssl.": (
        "algorithms key-password keystore keystore-password protocol provider truststore "
        "truststore-password verify-hostname"
    ),
    "security.ssl.internal.": (
        "close-notify-flush-timeout handshake-timeout keystore-type session-cache-size "
        "session-timeout truststore-type"
    ),
    "security.ssl.internal.cert.": "fingerprint",
    "security.ssl.rest.": "keystore-type truststore-type",
    "security.ssl.rest.cert.": "fingerprint",
    "state.backend.rocksdb.": (
        "incremental-restore-async-compact-after-rescale options-factory predefined-options "
        "restore-overlap-fraction-threshold use-ingest-db-restore-mode write-batch-size"
    ),
    "state.backend.rocksdb.block.": "cache-size metadata-blocksize",
    "state.backend.rocksdb.bloom-filter.": "block-based-mode",
    "state.backend.rocksdb.compaction.filter.": (
        "periodic-compaction-time query-time-after-num-entries"
    ),
    "state.backend.rocksdb.log.": "dir file-num level max-file-size",
    "state.backend.rocksdb.manual-compaction.": (
        "max-auto-compactions max-file-size-to-compact max-files-to-compact "
        "max-output-file-size max-parallel-compactions min-files-to-compact min-interval"
    ),
    "state.backend.rocksdb.memory.": (
        "fixed-per-tm high-prio-pool-ratio managed partitioned-index-filters"
    ),
    "state.backend.rocksdb.rescaling.": "use-delete-files-in-range",
    "state.backend.rocksdb.timer-service.": "cache-size factory",
    "state.backend.rocksdb.writebuffer.": "number-to-merge",
    "state.changelog.dstl.dfs.": "base-path",
    "state.changelog.dstl.dfs.batch.": "persist-delay persist-size-threshold",
    "state.changelog.dstl.dfs.discard.": "num-threads",
    "state.changelog.dstl.dfs.download.local-cache.": "idle-timeout-ms",
    "state.changelog.dstl.dfs.upload.": (
        "buffer-size max-attempts next-attempt-delay num-threads retry-policy timeout"
    ),
    "state.latency-track.": (
        "history-size keyed-state-enabled sample-interval state-name-as-variable"
    ),
    "state.size-track.": (
        "history-size keyed-state-enabled sample-interval state-name-as-variable"
    ),
    "taskmanager.": "bind-host host numberOfTaskSlots",
    "taskmanager.cpu.": "cores",
    "taskmanager.memory.": "segment-size",
    "taskmanager.memory.flink.": "size",
    "taskmanager.memory.managed.": "consumer-weights fraction size",
    "taskmanager.memory.network.": "fraction max min",
    "taskmanager.memory.process.": "size",
    "taskmanager.memory.task.heap.": "size",
    "taskmanager.memory.task.off-heap.": "size",
    "taskmanager.network.memory.": "buffers-request-timeout",
    "taskmanager.network.memory.read-buffer.required-per-gate.": "max",
    "taskmanager.rpc.": "port",
    "traces.checkpoint.": "span-detail-level",
    "web.": "history refresh-interval timeout",
    "web.cancel.": "enable",
    "web.rescale.": "enable",
    "web.submit.": "enable",
    "zookeeper.sasl.": "login-context-name service-name",
}

FLINK_ONLY: Final = frozenset(
    prefix + name for prefix, names in _BY_PREFIX.items() for name in names.split()
)
