"""The JSON Schema of workflow files, for editors.

It says as much as a schema can: keys, types, names and which of them go together. What needs the registry,
other files or expressions, `checking` finds. Keys without a value count as left out, here as when reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detent.dispatch.autonomy import AutonomyLevel, StepMode, StepType
from detent.dispatch.config_values import MAX_TOKENS
from detent.flows.workflow.reading import (
    COMMON_KEYS,
    DOTTED,
    INPUT_NAME,
    INPUT_TYPES,
    NAME,
    OLD_CONFIG,
    OWN_KEYS,
    REQUIRED_KEYS,
    STEP_NAME,
    VERSION,
)
from detent.flows.workflow.spec import RESERVED
from detent.kernel.policy import RetryPolicy

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def json_schema() -> Schema:
    """The schema of a whole file, draft 2020-12; a new one each time."""
    steps = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}
    return {
        "$schema": DIALECT,
        "title": "Detent workflow",
        "description": "Steps performed one after the other by code or by agents.",
        "type": "object",
        "additionalProperties": False,
        "required": ["version", "name", "steps"],
        "properties": {
            "version": {"const": VERSION, "description": "The version of this format, in quotes."},
            "name": {
                "type": "string",
                "pattern": f"^{NAME}$",
                "description": "How the workflow is called: small letters, digits and hyphens.",
            },
            "description": _text("What the workflow is for."),
            "inputs": _or_null({
                "type": "object",
                "propertyNames": {"pattern": f"^{INPUT_NAME}$"},
                "additionalProperties": {"$ref": "#/$defs/input"},
                "description": "What a run is given, by name; read as `inputs.<name>`.",
            }),
            "steps": {**steps, "description": "The steps, in order. Names are unique in the whole file."},
            "outputs": _or_null({
                "type": "object",
                "description": "What the workflow gives: a `${{ expression }}` for each name. Left out: "
                "the output of the last step that finished.",
            }),
            "metadata": _metadata(),
        },
        "$defs": {
            "input": _input(),
            "config": _config(),
            "condition": {"type": ["string", "boolean", "null"]},
            "step": _step(),
            **{kind.value: _kind(kind) for kind in StepType},
        },
    }  # fmt: skip


# -- parts of a file ----------------------------------------------------------------------------------------


def _input() -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["type"],
        "properties": {
            "type": {"enum": list(INPUT_TYPES), "description": "What kind of value it takes."},
            "required": _flag("Whether it must be given: true unless there is a default."),
            "default": {"description": "The value when none is given."},
            "description": _text("What it means."),
            "enum": _or_null({
                "type": "array", "minItems": 1, "description": "The values it may have.",
            }),
            "secret": _flag("Its value comes from the environment and is never written down."),
        },
        "not": {"required": ["required", "default"], "properties": {"required": {"const": True}}},
    }  # fmt: skip


def _step() -> Schema:
    kinds = [kind.value for kind in StepType]
    return {
        "type": "object",
        "required": ["name", "type"],
        "properties": {"type": {"enum": kinds, "description": "What kind of step it is."}},
        "allOf": [
            {
                "if": {"required": ["type"], "properties": {"type": {"const": kind}}},
                "then": {"$ref": f"#/$defs/{kind}"},
            }
            for kind in kinds
        ],
    }


def _kind(kind: StepType) -> Schema:
    """A step of one kind, with the keys all have and its own."""
    properties = {key: dict(_COMMON[key]) for key in COMMON_KEYS}
    properties["type"] = {"const": kind.value, "description": _KINDS[kind]}
    needed = REQUIRED_KEYS[kind]
    for key in OWN_KEYS[kind]:
        said = dict(_OWN[key])
        properties[key] = said if key == needed else _or_null(said)
    properties[OLD_CONFIG] = {**_COMMON["config"], "deprecated": True}
    return {
        "type": "object",
        "description": _KINDS[kind],
        "additionalProperties": False,
        "required": ["name", "type", *([needed] if needed else [])],
        "properties": properties,
    }


def _config() -> Schema:
    properties: Schema = {
        "mode": _choice([one.value for one in StepMode], "Who performs the step."),
        "autonomy": _choice([one.value for one in AutonomyLevel], "How far an agent's answer is trusted."),
        "provider": _name("The configured executor."),
        "model_id": _name("The model the executor uses."),
        "temperature": _or_null({
            "type": "number", "minimum": 0, "maximum": 1, "description": "How freely words are chosen.",
        }),
        "max_tokens": _or_null({
            "type": "integer", "minimum": 1, "maximum": MAX_TOKENS, "description": "Length of an answer.",
        }),
        "timeout": _or_null({
            "type": "number", "exclusiveMinimum": 0, "description": "Seconds for one attempt.",
        }),
        "max_retries": _or_null({
            "type": "integer", "minimum": 0, "description": "Attempts after the first one.",
        }),
        "retry_policy": _or_null({
            "type": "object",
            "deprecated": True,
            "additionalProperties": False,
            "properties": {
                "max_attempts": {"type": "integer", "minimum": 1, "default": RetryPolicy().max_attempts},
                "wait_min": {"type": "number", "minimum": 0},
                "wait_max": {"type": "number", "minimum": 0},
            },
            "description": "The older way of saying max_retries; counts all attempts.",
        }),
        "allowed_tools": _or_null({
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Of the tools the step declares, those an agent gets; [] for none.",
        }),
        "prompt_suffix": _or_null({"type": "string", "description": "Text added after the step's intent."}),
        "prompt_file": _name("File with the text added after the intent; relative to this file."),
        "budget": _or_null({
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {
                "tokens": _or_null({"type": "integer", "exclusiveMinimum": 0}),
                "cost_usd": _or_null({"type": "number", "exclusiveMinimum": 0}),
                "seconds": _or_null({"type": "number", "exclusiveMinimum": 0}),
            },
            "description": "A cap for this step inside the run's budget.",
        }),
        "shadow": {
            "anyOf": [{"type": ["boolean", "null"]}, {"type": "number", "minimum": 0, "maximum": 1}],
            "description": "Share of executions in which the other side is run beside, for statistics.",
        },
    }  # fmt: skip
    properties["model"] = {**_name("The old name of model_id."), "deprecated": True}
    properties["timeout_s"] = dict(properties["timeout"])
    properties["max_attempts"] = _or_null({
        "type": "integer", "minimum": 1, "description": "Attempts, the first one counted.",
    })  # fmt: skip
    return {
        "type": ["object", "null"],
        "description": "How the step is performed. What is left out, the project's settings say.",
        "additionalProperties": False,
        "properties": properties,
    }


# -- values -------------------------------------------------------------------------------------------------


def _or_null(schema: Schema) -> Schema:
    """The same, or nothing: a key without a value is left out."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {**schema, "type": [kind, "null"]}
    if isinstance(kind, list):
        return {**schema, "type": [*kind, *([] if "null" in kind else ["null"])]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "$ref" in schema:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**rest, "anyOf": [{"$ref": schema["$ref"]}, {"type": "null"}]}
    return schema


def _text(description: str) -> Schema:
    return {"type": ["string", "null"], "description": description}


def _name(description: str) -> Schema:
    return {"type": ["string", "null"], "pattern": r"\S", "description": description}


def _flag(description: str) -> Schema:
    return {"type": ["boolean", "null"], "description": description}


def _choice(options: list[str], description: str) -> Schema:
    return {"enum": [*options, None], "description": description}


def _metadata() -> Schema:
    return {"type": ["object", "null"], "description": "Anything you like; kept and never interpreted."}


_COMMON: Mapping[str, Schema] = {
    "name": {
        "type": "string",
        "pattern": f"^{STEP_NAME}$",
        "not": {"enum": list(RESERVED)},
        "description": "How the step is called; its output is read as `steps.<name>.output`.",
    },
    "type": {},
    "description": _text("What the step is for."),
    "when": {
        "$ref": "#/$defs/condition",
        "description": "An expression, with or without `${{ }}`; the step is skipped when it does not hold.",
    },
    "requires": {
        "type": ["array", "null"],
        "items": {"type": "string", "pattern": r"\S"},
        "description": "Prerequisites that must be there before the run begins, such as `git`.",
    },
    "config": {"$ref": "#/$defs/config"},
    "metadata": _metadata(),
}

_CONTEXT: Schema = {
    "type": ["object", "string"],
    "pattern": r"^(?!.*\$\{\{)[\s\S]*\S",
    "description": "What is told: values by name, or the name of a context builder.",
}
_STEPS: Schema = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}

_OWN: Mapping[str, Schema] = {
    "action": {"type": "string", "pattern": r"\S", "description": "The registered action it calls."},
    "args": {"type": "array", "description": "Values for the action's first parameters."},
    "kwargs": {"type": "object", "description": "Values for the action's parameters, by name."},
    "rollback": {"type": "string", "pattern": r"\S", "description": "The action that undoes the step."},
    "output_schema": {
        "anyOf": [{"type": "string", "pattern": f"^{DOTTED}$"}, {"type": "object"}],
        "description": "What the output must look like: a class by its dotted path, or a JSON Schema.",
    },
    "agent": {"type": "string", "pattern": r"\S", "description": "The registered agent it asks."},
    "context": _CONTEXT,
    "generator": {"type": "string", "pattern": r"\S", "description": "The registered generator that writes."},
    "stages": {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": r"\S"}},
            {"type": "string", "pattern": r"\S"},
        ],
        "description": "The checks, in order, or an expression that gives them.",
    },
    "retry": {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
        "description": "Runs after the first one; 3 where there is an on_failure, else 0.",
    },
    "on_failure": {"$ref": "#/$defs/step", "description": "The step that runs before each new attempt."},
    "must_pass": {"type": "boolean", "description": "Whether checks that still fail fail the step."},
    "workflow": {"type": "string", "pattern": r"\S", "description": "The workflow it runs: a name or path."},
    "inputs": {"type": "object", "description": "Values for the workflow's inputs."},
    "options": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["step"],
            "properties": {
                "when": {"$ref": "#/$defs/condition", "description": "When it is chosen; left out: always."},
                "step": {"$ref": "#/$defs/step"},
            },
        },
        "description": "The ways it may go; the first that holds is taken.",
    },
    "steps": {**_STEPS, "description": "The body."},
    "for_each": {
        "type": ["string", "array"],
        "minItems": 1,
        "pattern": r"\S",
        "description": "A list, or an expression that gives one; the body runs once per `item`.",
    },
    "until": {
        "type": ["string", "boolean"],
        "description": "An expression that is looked at after each pass; the loop ends when it holds.",
    },
    "parallel": {"type": "boolean", "description": "Items side by side, as many as the settings allow."},
    "max_concurrency": {
        "type": "integer",
        "minimum": 0,
        "description": "Items side by side; 0 for as many as the settings allow.",
    },
    "max_iterations": {"type": "integer", "minimum": 1, "description": "Passes of an `until` loop, at most."},
    "on_exhausted": {
        "enum": ["fail", "continue"],
        "description": "What becomes of an `until` loop after its last pass.",
    },
    "checkpoint_id": {
        "type": "string",
        "pattern": r"\S",
        "description": "How the point is called; the step's name when left out.",
    },
}

_KINDS: Mapping[StepType, str] = {
    StepType.PYTHON: "Calls a registered action.",
    StepType.AGENT: "Asks a registered agent.",
    StepType.GENERATE: "Has a text written by a registered generator.",
    StepType.VALIDATE: "Runs the project's checks, mending between runs.",
    StepType.SUBWORKFLOW: "Runs another workflow.",
    StepType.BRANCH: "Runs the step of the first option that holds.",
    StepType.LOOP: "Runs its body for each item, until something holds, or its steps side by side.",
    StepType.CHECKPOINT: "Gives the point a name to return to.",
}
