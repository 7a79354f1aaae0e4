"""Secret inputs: a mark stands for the value everywhere, and only a tool at work gets the value itself.

The mark carries a number drawn for the run, so that a text from outside cannot have a secret put into it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from detent.engine.calls import call
from detent.engine.context import StepContext
from detent.engine.step_failures import TRANSIENT
from detent.engine.tools import NOT_DONE, UNKNOWN, Tool, ToolError
from detent.flows.workflow.inputs import SECRET, inputs_hash, variable
from detent.flows.workflow.scope import SECRETS
from detent.flows.workflow.spec import InputSpec
from detent.kernel.plain import encode, to_plain

ARGUMENT = "detent_secrets"
"""The argument by which a run tells a tool which marks are its own."""


def marks_for(declared: Mapping[str, InputSpec]) -> dict[str, str]:
    """A mark for every secret input, for one run."""
    return {name: f"***{name}:{secrets.token_hex(6)}***" for name, spec in declared.items() if spec.secret}


def marked(inputs: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """Inputs with marks in the places of secrets."""
    return {
        name: marks[name] if name in marks and _is_secret(value) else value for name, value in inputs.items()
    }


def _is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and SECRET in value


def hash_of(declared: Mapping[str, InputSpec], inputs: Mapping[str, Any]) -> str:
    """What tells runs of one workflow apart; secrets are the same whatever stands for them."""
    return inputs_hash(
        {
            name: {SECRET: name} if name in declared and declared[name].secret else value
            for name, value in inputs.items()
        }
    )


def revealing(tools: Iterable[Tool], environ: Mapping[str, str] | None = None) -> list[Tool]:
    """The same tools, which get the values where marks stand and give marks back."""
    environment = os.environ if environ is None else environ
    return [_revealing(tool, environment) for tool in tools]


def _revealing(tool: Tool, environ: Mapping[str, str]) -> Tool:
    def given(ctx: StepContext) -> dict[str, Any]:
        own = dict(tool.given(ctx)) if tool.given is not None else {}
        marks = ctx.data.get(SECRETS)
        return {**own, ARGUMENT: dict(marks)} if marks else own

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        async def perform(*first: Any, detent_secrets: Mapping[str, str] | None = None, **args: Any) -> Any:
            if not detent_secrets:
                return await call(function, tool.off_loop, *first, **args)
            values = _values(detent_secrets, args, environ)
            try:
                answer = await call(function, tool.off_loop, *first, **_replaced(args, values))
            except Exception as error:
                if (told := _without(error, detent_secrets, environ)) is error:
                    raise
                raise told from None
            if answer is NOT_DONE or answer is UNKNOWN:
                return answer
            return hidden(to_plain(answer), detent_secrets, environ)

        return perform

    return replace(
        tool,
        perform=wrapped(tool.perform),
        probe=None if tool.probe is None else wrapped(tool.probe),
        given=given,
        in_front_of=tool.in_front_of or tool.perform,
        blocking=False,
    )


def hidden(value: Any, marks: Mapping[str, str], environ: Mapping[str, str]) -> Any:
    """A plain value with marks where the values of secrets stood."""
    found: dict[str, str] = {}
    for name, mark in marks.items():
        if secret := environ.get(variable(name)):
            found |= {secret: mark, encode(secret)[1:-1]: mark}  # also as it stands inside JSON
    return _replaced(value, dict(sorted(found.items(), key=lambda one: -len(one[0])))) if found else value


def _values(marks: Mapping[str, str], args: Any, environ: Mapping[str, str]) -> dict[str, str]:
    """What stands behind the marks that arguments hold."""
    values: dict[str, str] = {}
    for name, mark in marks.items():
        if not _holds(args, mark):
            continue
        if variable(name) not in environ:
            raise ToolError(
                "secret_missing",
                f"the secret input '{name}' is read from {variable(name)}, which is not set here; set it and "
                f"run the workflow again",
            )
        values[mark] = environ[variable(name)]
    return values


def _without(error: Exception, marks: Mapping[str, str], environ: Mapping[str, str]) -> Exception:
    """An error that says the same without the values of secrets; itself where it says none."""
    said = str(error)
    told: str = hidden(said, marks, environ)
    if told == said:
        return error
    if isinstance(error, ToolError):
        return ToolError(error.code, hidden(error.message, marks, environ), transient=error.transient)
    for kind in TRANSIENT:
        if isinstance(error, kind):
            return kind(told)  # type: ignore[return-value]
    return RuntimeError(f"{type(error).__name__}: {told}")


def _holds(value: Any, text: str) -> bool:
    """Whether a text stands anywhere in a nested value."""
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        return any(_holds(key, text) or _holds(one, text) for key, one in value.items())
    return isinstance(value, list | tuple) and any(_holds(one, text) for one in value)


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """A nested value with texts replaced inside its texts, keys included."""
    if isinstance(value, str):
        for old, new in texts.items():
            if old in value:
                value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        return {_replaced(key, texts): _replaced(one, texts) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(one, texts) for one in value]
    return value
