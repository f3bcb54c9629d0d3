from concurrent.futures import Future

from tidegate.api.job.client import CheckpointDone as CheckpointDone
from tidegate.api.job.client import JobClient as JobClient
from tidegate.api.job.client import JobExecutionResult as JobExecutionResult
from tidegate.api.job.client import JobSummary as JobSummary
from tidegate.api.job.failures import FailureContext as FailureContext
from tidegate.api.job.failures import FailureEnricher as FailureEnricher
from tidegate.api.job.failures import FailureKind as FailureKind
from tidegate.api.job.hooks import MasterStateSerializer as MasterStateSerializer
from tidegate.api.job.hooks import MasterTriggerRestoreHook as MasterTriggerRestoreHook
from tidegate.api.job.listeners import JobExecutionStatusEvent as JobExecutionStatusEvent
from tidegate.api.job.listeners import JobStatusChangedListener as JobStatusChangedListener
from tidegate.jobmaster.view import JobView as JobView
from tidegate.model.control import JobStatus as JobStatus
from tidegate.model.ids import JobId

CompletableFuture = Future
JobID = JobId
