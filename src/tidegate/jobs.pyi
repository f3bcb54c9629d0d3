from concurrent.futures import Future

from tidegate.api.job import CheckpointDone as CheckpointDone
from tidegate.api.job import FailureContext as FailureContext
from tidegate.api.job import FailureEnricher as FailureEnricher
from tidegate.api.job import FailureKind as FailureKind
from tidegate.api.job import JobClient as JobClient
from tidegate.api.job import JobExecutionResult as JobExecutionResult
from tidegate.api.job import JobExecutionStatusEvent as JobExecutionStatusEvent
from tidegate.api.job import JobStatusChangedListener as JobStatusChangedListener
from tidegate.api.job import JobSummary as JobSummary
from tidegate.api.job import MasterStateSerializer as MasterStateSerializer
from tidegate.api.job import MasterTriggerRestoreHook as MasterTriggerRestoreHook
from tidegate.jobmaster.view import JobView as JobView
from tidegate.model.control import JobStatus as JobStatus
from tidegate.model.control import LogRecord as LogRecord
from tidegate.model.ids import JobId
from tidegate.model.logs import LogEntry as LogEntry
from tidegate.model.logs import LogFilter as LogFilter
from tidegate.model.logs import LogPage as LogPage

CompletableFuture = Future
JobID = JobId
