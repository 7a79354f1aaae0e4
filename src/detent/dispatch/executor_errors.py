"""Failures of asking an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from detent.dispatch.autonomy import FallbackReason
from detent.dispatch.usage import UsageMetadata
from detent.engine.step_failures import Diverged
from detent.kernel.errors import DetentError


class ExecutorError(DetentError):
    """An execution failed."""

    reason = FallbackReason.EXCEPTION

    def __init__(
        self,
        message: str,
        *,
        step_name: str = "",
        attempt: int = 1,
        transient: bool = False,
        retry_after: float | None = None,
        usage: UsageMetadata | None = None,
    ) -> None:
        self.step_name = step_name
        self.attempt = attempt
        self.transient = transient
        """Whether trying again may help: after a lost connection, a rate limit."""
        self.retry_after = retry_after
        """The least number of seconds to wait, if the provider gave one."""
        self.usage = usage
        """The usage of the failed execution."""
        super().__init__(message)


class MisconfiguredError(ExecutorError):
    """It cannot be asked until a person mends a setting: a wrong key, a model that does not exist."""


class ExecutorTimeoutError(ExecutorError):
    """An attempt took too long."""

    reason = FallbackReason.TIMEOUT

    def __init__(
        self, step_name: str, timeout: float, attempt: int = 1, usage: UsageMetadata | None = None
    ) -> None:
        self.timeout = timeout
        super().__init__(
            f"'{step_name}' was not answered within {timeout:g} s (attempt {attempt}).",
            step_name=step_name, attempt=attempt, transient=True, usage=usage,
        )  # fmt: skip


class RequestTooLongError(ExecutorError):
    """The request is longer than the model's context; a shorter one may be answered."""


class OutputSchemaValidationError(ExecutorError):
    """The answer breaks the step's hard contract. The agent is asked once more, with the violations."""

    reason = FallbackReason.SCHEMA_VIOLATION

    def __init__(
        self,
        step_name: str,
        schema_type: str,
        validation_errors: Sequence[str],
        *,
        attempt: int = 1,
        usage: UsageMetadata | None = None,
    ) -> None:
        self.schema_type = schema_type
        self.validation_errors = tuple(validation_errors)
        """Each names a place and what was expected there, never the value found there."""
        super().__init__(
            f"The answer for '{step_name}' does not fit {schema_type}: {'; '.join(self.validation_errors)}",
            step_name=step_name, attempt=attempt, usage=usage,
        )  # fmt: skip


class ReferenceResolutionError(ExecutorError):
    """An execution referred to something that does not exist."""

    def __init__(
        self, reference_type: str, reference_name: str, available_names: Sequence[str], *, step_name: str = ""
    ) -> None:
        self.reference_type = reference_type
        self.reference_name = reference_name
        self.available_names = tuple(available_names)
        names = ", ".join(self.available_names) or "none"
        super().__init__(
            f"There is no {reference_type} '{reference_name}'. There is: {names}.", step_name=step_name
        )


class BudgetExhaustedError(ExecutorError):
    """No budget is left for an attempt."""

    reason = FallbackReason.BUDGET

    def __init__(self, limit: str, spent: float, of: float, *, step_name: str = "") -> None:
        self.limit = limit
        self.spent = spent
        self.of = of
        super().__init__(f"The {limit} budget is used up: {spent:g} of {of:g}.", step_name=step_name)


class DispatchError(DetentError):
    """The agent failed, and so did the handler it fell back on."""

    def __init__(
        self, step_name: str, reason: FallbackReason, agent_error: str, handler_error: BaseException
    ) -> None:
        self.step_name = step_name
        self.reason = reason
        self.agent_error = agent_error
        self.handler_error = handler_error
        self.detail: dict[str, Any] = {}
        """The journal's record of the dispatch."""
        self.after: Callable[[], Awaitable[None]] | None = None
        """Called once the failure is committed."""
        by_handler = f"{type(handler_error).__name__}: {handler_error}"
        why = reason.value.replace("_", " ")
        agent = f"Agent: {why}" if agent_error == reason.value else f"Agent ({why}): {agent_error}"
        if agent_error == by_handler:
            message = f"Step '{step_name}' failed for agent and handler alike: {by_handler}"
        elif isinstance(handler_error, Diverged):
            message = f"Step '{step_name}' failed. {agent}. {handler_error}"
        else:
            message = f"Step '{step_name}' failed twice. {agent}. Handler: {by_handler}"
        super().__init__(message)
        self.__cause__ = handler_error
