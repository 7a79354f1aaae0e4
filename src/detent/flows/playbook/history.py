"""The history of a playbook's run: its steps as tuples, and each step's outcome in the protocol's lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent.flows.playbook.checks import redirect_of
from detent.flows.playbook.instruction import DEGRADED
from detent.flows.playbook.protocol import BODY, read_reply, render
from detent.insight.visits import Blobs, FunctionCall, StepTuple, StepVisit, visits
from detent.kernel.entries import Entry
from detent.kernel.errors import DetentError

if TYPE_CHECKING:
    from detent.flows.playbook.playbook import Playbook


class MaxStepsExceeded(DetentError):
    """A run made as many steps as it may, and would have gone on."""

    def __init__(self, max_steps: int, current_step: str, path: Sequence[str]) -> None:
        self.max_steps = max_steps
        self.current_step = current_step
        """The step that was not begun."""
        self.path = tuple(path)
        super().__init__(
            f"The run made {max_steps} steps ({' → '.join(path)}) and would have gone on with "
            f"'{current_step}'."
        )


def step_history(
    entries: Iterable[Entry],
    *,
    playbook: Playbook | None = None,
    hashed: Collection[str] = (),
    blobs: Blobs | None = None,
) -> list[StepTuple]:
    """One `(step_name, input_data, output_data, next_step)` per step, in order.

    With the playbook, `input_data` holds the step's `needs`; without it, all data. Values of keys in `hashed`
    are replaced by their hash.
    """
    needs = playbook.needs if playbook is not None else None
    steps = visits(entries, needs=needs, hashed=hashed, blobs=blobs)
    return [visit.as_tuple() for visit in steps]


def response_text(visit: StepVisit, playbook: Playbook) -> str:
    """A step's outcome in the lines of the protocol, followed by an agent's reply if there is one."""
    step = playbook.steps.get(visit.step_name)
    lines = playbook.output_lines(step) if step is not None else ()
    reply = read_reply(visit.reply, allowed=(visit.next_step,), lines=lines) if visit.reply else None
    outputs = {line.key: visit.changes.get(line.sets) for line in lines if line.sets}
    body = None
    target = step.text_fields.get(BODY, "") if step is not None else ""
    function, _, argument = target.rpartition(".")
    for call in visit.calls:
        if call.function_name == function and isinstance(call.arguments, Mapping):
            body = call.arguments.get(argument)
    by_agent = visit.by == "agent" and visit.reply is not None
    text = render(
        next_step=visit.next_step,
        outputs=outputs,
        reason=reply.reason if by_agent and reply is not None and reply.reason else visit.reason,
        calls=[(call.function_name, call.arguments, _result(call)) for call in visit.calls],
        body=body if isinstance(body, str) else None,
    )
    return f"{text}\n\n{visit.reply}" if by_agent else text


def own_calls(visit: StepVisit, playbook: Playbook) -> list[FunctionCall]:
    """The calls of a step without the redirect of a degraded run."""
    redirect = redirect_of(playbook.manifest)
    if redirect is None or visit.next_step != DEGRADED:
        return list(visit.calls)
    step = playbook.steps.get(visit.step_name)
    declared = {function.name for function in step.available_functions} if step is not None else set()

    def is_redirect(call: FunctionCall) -> bool:
        if call.function_name != redirect.function:
            return False
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
        marks = redirect.args.items()
        return call.function_name not in declared or (bool(marks) and marks <= arguments.items())

    return [call for call in visit.calls if not is_redirect(call)]


def _result(call: FunctionCall) -> Any:
    return call.result if call.success else {"error": call.error_message}
