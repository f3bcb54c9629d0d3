from tidegate.migration.from_flink import MigratedState as MigratedState
from tidegate.migration.from_flink import MigrationReport as MigrationReport
from tidegate.migration.from_flink import migrate_savepoint as migrate_savepoint
from tidegate.migration.rewrite import rewrite_flink_savepoint as rewrite_flink_savepoint
from tidegate.snapshots.checking.findings import CheckedSnapshot as CheckedSnapshot
from tidegate.snapshots.checking.findings import Fault as Fault
from tidegate.snapshots.checking.findings import Finding as Finding
from tidegate.snapshots.checking.findings import FsckReport as FsckReport
from tidegate.snapshots.checking.fsck import fsck as fsck
from tidegate.snapshots.differences import EntryDiff as EntryDiff
from tidegate.snapshots.differences import FileReuse as FileReuse
from tidegate.snapshots.differences import OperatorDiff as OperatorDiff
from tidegate.snapshots.differences import SnapshotDiff as SnapshotDiff
from tidegate.snapshots.differences import StateDiff as StateDiff
from tidegate.snapshots.differences import diff_snapshots as diff_snapshots
from tidegate.snapshots.folders import SavepointInfo as SavepointInfo
from tidegate.snapshots.folders import dispose_savepoint as dispose_savepoint
from tidegate.snapshots.folders import list_savepoints as list_savepoints
from tidegate.snapshots.rows import OperatorInfo as OperatorInfo
from tidegate.snapshots.rows import StateInfo as StateInfo
from tidegate.snapshots.rows import StateKind as StateKind
from tidegate.snapshots.rows import StateRow as StateRow
from tidegate.snapshots.snapshot import Snapshot as Snapshot
from tidegate.snapshots.summary import KeyGroupSummary as KeyGroupSummary
from tidegate.snapshots.summary import OperatorSummary as OperatorSummary
from tidegate.snapshots.summary import SnapshotSummary as SnapshotSummary
from tidegate.snapshots.summary import StateSummary as StateSummary
from tidegate.snapshots.summary import inspect_snapshot as inspect_snapshot
from tidegate.snapshots.tables import StateTable as StateTable
from tidegate.snapshots.tables import read_state as read_state
from tidegate.snapshots.writing.writer import SavepointWriter as SavepointWriter
from tidegate.snapshots.writing.writer import begin_savepoint
from tidegate.spark.state_source import StateDataSource as StateDataSource
from tidegate.spark.state_source import register_state_source as register_state_source
from tidegate.spark.state_source import state_options as state_options

check = fsck
count = inspect_snapshot
diff = diff_snapshots
migrate = migrate_savepoint
open = Snapshot.open
write = begin_savepoint
