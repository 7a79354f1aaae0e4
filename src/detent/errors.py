"""Errors that code around the engine may catch; `DetentError` is above all of them."""

from __future__ import annotations

from detent.engine.step_failures import StepChanged as StepChanged
from detent.engine.step_failures import StepFailed as StepFailed
from detent.engine.step_failures import Transient as Transient
from detent.engine.tools import ToolError as ToolError
from detent.engine.trial_context import CannotCheck as CannotCheck
from detent.kernel.errors import BudgetExceededError as BudgetExceededError
from detent.kernel.errors import ConfigurationError as ConfigurationError
from detent.kernel.errors import DefinitionChanged as DefinitionChanged
from detent.kernel.errors import DefinitionError as DefinitionError
from detent.kernel.errors import DetentError as DetentError
from detent.kernel.errors import Fenced as Fenced
from detent.kernel.errors import FlowNotFound as FlowNotFound
from detent.kernel.errors import HoldNotOpen as HoldNotOpen
from detent.kernel.errors import InvalidTransitionError as InvalidTransitionError
from detent.kernel.errors import InvalidValue as InvalidValue
from detent.kernel.errors import KeyTaken as KeyTaken
from detent.kernel.errors import RunBusy as RunBusy
from detent.kernel.errors import RunExists as RunExists
from detent.kernel.errors import RunNotFound as RunNotFound
from detent.kernel.errors import RunStateError as RunStateError
from detent.kernel.errors import StoreError as StoreError
from detent.kernel.errors import StoreUnavailable as StoreUnavailable
