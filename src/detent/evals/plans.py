"""What a case plans: faults and answers of functions, and replies of agents.

Planned faults are named by the words in `FAULTS`, both for functions and for agents.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, NamedTuple

from detent.engine.calls import call
from detent.engine.tools import Tool, ToolError
from detent.evals.case import EvalTestCase
from detent.evals.played import PlayFailed
from detent.kernel.errors import nearest

OK = "ok"
"""An attempt that is not planned to fail."""


class Fault(NamedTuple):
    """A planned failure, as the caller sees it."""

    code: str
    message: str
    transient: bool
    """Trying again may help."""


FAULTS: Mapping[str, Fault] = {
    "timeout": Fault("timeout", "no answer in time", True),
    "connection": Fault("connection", "the connection was refused", True),
    "http_500": Fault("server", "the service answered with an error of its own (500)", True),
    "http_400": Fault("rejected", "the service refused the request (400)", False),
}

Answered = Callable[[str, Any, Mapping[str, Any]], Any]
"""`(function, planned answer, arguments) -> answer`; raises `ToolError` for an answer that is an error."""


class Plans:
    """The faults and answers one case plans for its functions."""

    def __init__(self, case: EvalTestCase, answered: Answered | None = None) -> None:
        """`answered` converts a planned answer to the form of the function's own answers."""
        planned = case.input
        self._answered = answered or (lambda function, answer, args: copy.deepcopy(answer))
        self._answers = {
            function: deque(listed(answers))
            for function, answers in (planned.get("mock_function_responses") or {}).items()
        }
        self._faults = {
            function: deque(listed(words)) for function, words in (planned.get("failures") or {}).items()
        }

    def check(self, functions: Collection[str]) -> None:
        """Check that every function with a plan exists.

        Raises:
            PlayFailed: something is planned for an unknown function.
        """
        for key, planned in (("mock_function_responses", self._answers), ("failures", self._faults)):
            for function in planned:
                if function not in functions:
                    raise PlayFailed(
                        f"input.{key}: there is no function '{function}'.{nearest(function, functions)} "
                        f"Functions: {', '.join(sorted(functions))}."
                    )

    def around(self, tool: Tool) -> Tool:
        """The tool, wrapped so that it gives the planned faults and answers."""
        answers, faults = self._answers.get(tool.name), self._faults.get(tool.name)
        if not answers and not faults:
            return tool

        @wraps(tool.perform)
        async def perform(*first: Any, **args: Any) -> Any:
            word = faults.popleft() if faults else OK
            if word != OK:
                fault = FAULTS[word]
                raise ToolError(fault.code, fault.message, transient=fault.transient)
            if not answers:
                return await call(tool.perform, tool.off_loop, *first, **args)
            # The last answer is repeated: a step may ask again.
            return self._answered(tool.name, answers.popleft() if len(answers) > 1 else answers[0], args)

        return replace(tool, perform=perform, blocking=False)


def script_of(replies: Mapping[str, Any]) -> dict[str, list[Any]]:
    """A case's `agent_replies` as a script for the scripted executor.

    A case may abbreviate: a text stands for `{text: …}`, a fault for its word, and a
    call for `{function: {arguments}}`.
    """
    return {step: [_reply(reply) for reply in listed(step_replies)] for step, step_replies in replies.items()}


def listed(value: Any) -> Sequence[Any]:
    """A list unchanged; any other value as a list of one item."""
    return value if isinstance(value, list) else [value]


def _reply(reply: Any) -> Any:
    if isinstance(reply, str):
        return {"text": reply}
    if not isinstance(reply, Mapping):
        return reply
    spelled = dict(reply)
    word = reply.get("error")
    if isinstance(word, str) and word in FAULTS and word != "timeout":
        fault = FAULTS[word]
        spelled["error"] = {
            "type": "transient" if fault.transient else "permanent",
            "message": fault.message,
        }
    if isinstance(reply.get("calls"), list):
        spelled["calls"] = [
            spelled_call for planned_call in reply["calls"] for spelled_call in _calls(planned_call)
        ]
        if not {"text", "output", "error"} & set(reply):
            spelled["text"] = ""
    return spelled


def _calls(planned_call: Any) -> list[Any]:
    if not isinstance(planned_call, Mapping) or "tool" in planned_call:
        return [planned_call]
    return [{"tool": function, "args": args} for function, args in planned_call.items()]
