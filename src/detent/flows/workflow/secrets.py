"""Secret inputs: a mark replaces the value everywhere, and only a running tool receives the value itself.

The mark contains a random number of the run, so that a text from outside cannot have a secret inserted.
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
from detent.flows.workflow.inputs import SECRET, inputs_hash, is_secret, variable
from detent.flows.workflow.run_data import SECRETS
from detent.flows.workflow.spec import InputSpec
from detent.kernel.plain import encode, to_plain

ARGUMENT = "detent_secrets"
"""Argument that passes the marks of a run to a tool."""


def marks_for(declared: Mapping[str, InputSpec]) -> dict[str, str]:
    """Return a new mark for every secret input, for one run."""
    return {name: f"***{name}:{secrets.token_hex(6)}***" for name, spec in declared.items() if spec.secret}


def marked(inputs: Mapping[str, Any], marks: Mapping[str, str]) -> dict[str, Any]:
    """Return the inputs with marks in place of secrets."""
    return {
        name: marks[name] if name in marks and is_secret(value) else value for name, value in inputs.items()
    }


def hash_of(declared: Mapping[str, InputSpec], inputs: Mapping[str, Any]) -> str:
    """Return the hash that identifies runs by their inputs; the values of secrets do not count."""
    return inputs_hash(
        {
            name: {SECRET: name} if name in declared and declared[name].secret else value
            for name, value in inputs.items()
        }
    )


def revealing(tools: Iterable[Tool], environ: Mapping[str, str] | None = None) -> list[Tool]:
    """Wrap tools so that marks in their arguments become values, and values in their results become marks."""
    environment = os.environ if environ is None else environ
    return [_revealing(tool, environment) for tool in tools]


def _revealing(tool: Tool, environ: Mapping[str, str]) -> Tool:
    def given(ctx: StepContext) -> dict[str, Any]:
        arguments = dict(tool.given(ctx)) if tool.given is not None else {}
        marks = ctx.data.get(SECRETS)
        return {**arguments, ARGUMENT: dict(marks)} if marks else arguments

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        async def perform(*first: Any, detent_secrets: Mapping[str, str] | None = None, **args: Any) -> Any:
            if not detent_secrets:
                return await call(function, tool.off_loop, *first, **args)
            values = _secret_values(detent_secrets, args, environ)
            try:
                answer = await call(function, tool.off_loop, *first, **_replaced(args, values))
            except Exception as error:
                if (redacted := _redacted(error, detent_secrets, environ)) is error:
                    raise
                raise redacted from None
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
    """Return a plain value with marks in place of the values of secrets."""
    replacements: dict[str, str] = {}
    for name, mark in marks.items():
        if secret := environ.get(variable(name)):
            replacements |= {secret: mark, encode(secret)[1:-1]: mark}  # also as escaped inside JSON
    return (
        _replaced(value, dict(sorted(replacements.items(), key=lambda pair: -len(pair[0]))))
        if replacements
        else value
    )


def _secret_values(marks: Mapping[str, str], args: Any, environ: Mapping[str, str]) -> dict[str, str]:
    """The values of the secrets whose marks the arguments contain."""
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


def _redacted(error: Exception, marks: Mapping[str, str], environ: Mapping[str, str]) -> Exception:
    """The error with marks in place of secrets; the same object if it contains none."""
    message = str(error)
    redacted: str = hidden(message, marks, environ)
    if redacted == message:
        return error
    if isinstance(error, ToolError):
        return ToolError(error.code, hidden(error.message, marks, environ), transient=error.transient)
    for kind in TRANSIENT:
        if isinstance(error, kind):
            return kind(redacted)  # type: ignore[return-value]
    return RuntimeError(f"{type(error).__name__}: {redacted}")


def _holds(value: Any, text: str) -> bool:
    """Whether a nested value contains a text."""
    if isinstance(value, str):
        return text in value
    if isinstance(value, Mapping):
        return any(_holds(key, text) or _holds(item, text) for key, item in value.items())
    return isinstance(value, list | tuple) and any(_holds(item, text) for item in value)


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """A nested value with texts replaced inside its texts, keys included."""
    if isinstance(value, str):
        for old, new in texts.items():
            if old in value:
                value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        return {_replaced(key, texts): _replaced(item, texts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, texts) for item in value]
    return value
