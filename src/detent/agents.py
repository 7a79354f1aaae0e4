"""Who performs a step, and what counts: configuration, levels of autonomy, contracts, the executor port."""

from __future__ import annotations

from detent.dispatch.agent_side import AgentSide as AgentSide
from detent.dispatch.autonomy import AutonomyLevel as AutonomyLevel
from detent.dispatch.autonomy import FallbackReason as FallbackReason
from detent.dispatch.autonomy import StepMode as StepMode
from detent.dispatch.config import StepConfig as StepConfig
from detent.dispatch.dispatcher import DispatchSettings as DispatchSettings
from detent.dispatch.equivalence import CompareRules as CompareRules
from detent.dispatch.evidence import EvidenceRules as EvidenceRules
from detent.dispatch.executor import AgentStreamChunk as AgentStreamChunk
from detent.dispatch.executor import Availability as Availability
from detent.dispatch.executor import ExecutorResult as ExecutorResult
from detent.dispatch.executor import StepExecutor as StepExecutor
from detent.dispatch.executor_errors import DispatchError as DispatchError
from detent.dispatch.executor_errors import ExecutorError as ExecutorError
from detent.dispatch.format import JsonDialect as JsonDialect
from detent.dispatch.plan import Dialect as Dialect
from detent.dispatch.proposal import Example as Example
from detent.dispatch.proposal import Proposal as Proposal
from detent.dispatch.proposal import Verdict as Verdict
from detent.dispatch.result import DispatchResult as DispatchResult
from detent.dispatch.usage import UsageMetadata as UsageMetadata
from detent.flows.workflow.step_type import StepType as StepType
