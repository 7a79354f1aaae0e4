"""Secret inputs: a mark stands for the value everywhere, and only a tool at work gets the value itself.

The mark carries a number drawn for the run, so that a text from outside cannot have a secret put into it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from detent.engine.context import StepContext, call
from detent.engine.tools import Tool
from detent.flows.workflow.inputs import SECRET, inputs_hash, variable
from detent.flows.workflow.scope import SECRETS
from detent.flows.workflow.spec import InputSpec
from detent.kernel.errors import ConfigurationError

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
                return await call(function, tool.blocking, *first, **args)
            values = {mark: _value(name, environ) for name, mark in detent_secrets.items()}
            answer = await call(function, tool.blocking, *first, **_replaced(args, values))
            return _replaced(answer, {value: mark for mark, value in values.items() if value})

        return perform

    return replace(
        tool,
        perform=wrapped(tool.perform),
        probe=None if tool.probe is None else wrapped(tool.probe),
        given=given,
        arguments=tool.schema,
        blocking=False,
    )


def _value(name: str, environ: Mapping[str, str]) -> str:
    try:
        return environ[variable(name)]
    except KeyError:
        raise ConfigurationError(
            f"The secret input '{name}' is read from {variable(name)}, which is not set here."
        ) from None


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """A nested value with texts replaced inside its texts."""
    if isinstance(value, str):
        for old, new in texts.items():
            if old in value:
                value = value.replace(old, new)
        return value
    if isinstance(value, Mapping):
        return {key: _replaced(one, texts) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(one, texts) for one in value]
    return value
