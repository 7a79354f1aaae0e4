"""Planned answers of the application's functions, in the form of the functions' own answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.apps.warranty.domain.coverage import failure, normalised
from detent.engine.tools import ToolError
from detent.evals.case import EvalTestCase

OLDER = {"warranty_api": "check_warranty", "ticketing_system": "create_ticket", "email": "send_email"}
"""Older names of the functions, under `mock_responses`."""


def with_current_names(case: EvalTestCase) -> EvalTestCase:
    """The case with the entries of `mock_responses` under the current names of the functions."""
    older = {
        OLDER.get(name, name): answers for name, answers in (case.input.get("mock_responses") or {}).items()
    }
    if not older:
        return case
    planned = {**older, **(case.input.get("mock_function_responses") or {})}
    return replace(case, input={**case.input, "mock_function_responses": planned})


def answered(function: str, answer: Any, args: Mapping[str, Any]) -> Any:
    """A planned answer in the function's form.

    Raises:
        ToolError: the planned answer is an error.
    """
    if function == "check_warranty":
        answer = normalised(answer)
        if answer.get("serial_number", "") is None:
            answer["serial_number"] = args.get("serial_number")
    elif isinstance(answer, Mapping) and answer.get("error"):
        error = answer["error"]
        answer = {"error": error} if isinstance(error, Mapping) else failure("server", str(error))
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if error:
        raise ToolError(
            str(error.get("code") or "server"),
            str(error.get("message") or "a planned error"),
            transient=bool(error.get("transient")),
        )
    return answer
