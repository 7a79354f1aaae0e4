"""Errors of running workflows."""

from __future__ import annotations

from collections.abc import Sequence

from detent.kernel.errors import DetentError


class WorkflowError(DetentError):
    """A step of a workflow failed for a reason specific to workflows."""


class LoopStepExecutionError(WorkflowError):
    """Iterations of a loop failed."""

    def __init__(
        self, step_name: str, failed_iterations: Sequence[int], total_iterations: int, first: str = ""
    ) -> None:
        self.step_name = step_name
        self.failed_iterations = tuple(failed_iterations)
        self.total_iterations = total_iterations
        which = ", ".join(f"[{index}]" for index in self.failed_iterations[:10])
        more = f" and {len(self.failed_iterations) - 10} more" if len(self.failed_iterations) > 10 else ""
        first_error = f" {first}" if first else ""
        super().__init__(
            f"Loop '{step_name}': {len(self.failed_iterations)} of {total_iterations} iterations failed "
            f"({which}{more}).{first_error}"
        )


class LoopExhausted(WorkflowError):
    """The condition of a loop did not hold after its last pass."""

    def __init__(self, step_name: str, passes: int) -> None:
        self.step_name = step_name
        self.passes = passes
        super().__init__(
            f"Loop '{step_name}': `until` did not hold after {passes} passes. Raise max_iterations, or say "
            f"on_exhausted: continue."
        )


class SubworkflowError(WorkflowError):
    """The workflow of a subworkflow step did not succeed."""

    def __init__(self, step_name: str, workflow: str, status: str, error: str) -> None:
        self.step_name = step_name
        self.workflow = workflow
        self.status = status
        super().__init__(f"Workflow '{workflow}' of step '{step_name}' ended {status}: {error}")


class ValidationFailed(WorkflowError):
    """Checks of a project still fail."""

    def __init__(self, step_name: str, why: str) -> None:
        self.step_name = step_name
        super().__init__(f"Validation '{step_name}' did not pass: {why}")


class RollbackError(WorkflowError):
    """The rollback of a step failed; the other rollbacks ran nevertheless."""

    def __init__(self, step_name: str, error: str) -> None:
        self.step_name = step_name
        self.error = error
        super().__init__(f"What step '{step_name}' did could not be undone: {error}")
