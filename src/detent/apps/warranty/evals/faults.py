"""Puts what a case plans around the tools: answers in place of theirs, and attempts that go wrong."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from detent.apps.warranty.craft.coverage import failure, normalised
from detent.engine.calls import call
from detent.engine.tools import Tool, ToolError
from detent.evals.case import EvalTestCase
from detent.evals.playing import PlayFailed
from detent.kernel.errors import nearest

OLDER = {"warranty_api": "check_warranty", "ticketing_system": "create_ticket", "email": "send_email"}
"""Older names of the functions, under `mock_responses`."""
FAULTS = {
    "timeout": ("timeout", "no answer in time", True),
    "connection": ("connection", "the connection was refused", True),
    "http_500": ("server", "the service answered with an error of its own (500)", True),
    "http_400": ("rejected", "the service refused the request (400)", False),
}
"""What a planned fault looks like to whoever called: code, message, whether trying again may help."""


class Plans:
    """What one case plans for its functions."""

    def __init__(self, case: EvalTestCase) -> None:
        given = case.input
        self._answers: dict[str, deque[Any]] = {}
        for function, answers in (given.get("mock_function_responses") or {}).items():
            self._answers[function] = deque(answers if isinstance(answers, list) else [answers])
        for name, answers in (given.get("mock_responses") or {}).items():
            function = OLDER.get(name, name)
            self._answers.setdefault(function, deque(answers if isinstance(answers, list) else [answers]))
        self._faults = {
            function: deque(words if isinstance(words, list) else [words])
            for function, words in (given.get("failures") or {}).items()
        }

    def check(self, functions: Mapping[str, Any]) -> None:
        """`PlayFailed` for a plan about a function that is not there."""
        for function in (*self._answers, *self._faults):
            if function not in functions:
                there = ", ".join(functions)
                raise PlayFailed(
                    f"The case plans something for '{function}', which is no function here."
                    f"{nearest(function, functions)} Functions: {there}."
                )

    def around(self, tool: Tool) -> Tool:
        """The tool, with what is planned around it."""
        answers, faults = self._answers.get(tool.name), self._faults.get(tool.name)
        if not answers and not faults:
            return tool
        inner: Callable[..., Awaitable[Any]] = tool.perform

        @wraps(inner)
        async def perform(*args: Any, **kwargs: Any) -> Any:
            word = faults.popleft() if faults else "ok"
            if word != "ok":
                code, message, transient = FAULTS[word]
                raise ToolError(code, message, transient=transient)
            if not answers:
                return await call(inner, None, *args, **kwargs)
            return _answered(tool.name, answers.popleft() if len(answers) > 1 else answers[0], kwargs)

        return replace(tool, perform=perform)


def _answered(function: str, answer: Any, args: Mapping[str, Any]) -> Any:
    """A planned answer in the function's shape; one that is an error is raised."""
    if function == "check_warranty":
        answer = normalised(answer)
        if answer.get("serial_number", "") is None:
            answer["serial_number"] = args.get("serial_number")
    elif isinstance(answer, Mapping) and answer.get("error"):
        said = answer["error"]
        answer = {"error": said} if isinstance(said, Mapping) else failure("server", str(said))
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if error:
        raise ToolError(
            str(error.get("code") or "server"),
            str(error.get("message") or "a planned error"),
            transient=bool(error.get("transient")),
        )
    return answer
