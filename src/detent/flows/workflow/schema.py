"""The JSON Schema of workflow files, for editors: built from the models in `spec`.

It covers keys, types, names and which of them go together; `checks` does the checks that need the registry,
other files or expressions. Keys without a value count as left out, as in reading.
"""

from __future__ import annotations

from typing import Any

from detent.authoring import model
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config_values import MAX_TOKENS
from detent.flows.workflow.reading import KINDS, OLD_CONFIG
from detent.flows.workflow.spec import STEPS, InputSpec, Option, WorkflowSpec
from detent.kernel.policy import RetryPolicy

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]


def json_schema() -> Schema:
    """Return the schema of a whole file, draft 2020-12; a new object each time."""
    not_both = {"required": ["required", "default"], "properties": {"required": {"const": True}}}
    return {
        "$schema": DIALECT,
        "title": "Detent workflow",
        **model.json_schema(WorkflowSpec),
        "$defs": {
            "input": {**model.json_schema(InputSpec), "not": not_both},
            "option": model.json_schema(Option),
            "config": _config(),
            "step": {
                "type": "object",
                "required": ["name", "type"],
                "properties": {"type": {"enum": list(KINDS), "description": "What kind of step it is."}},
                "allOf": [
                    {
                        "if": {"required": ["type"], "properties": {"type": {"const": kind}}},
                        "then": {"$ref": f"#/$defs/{kind}"},
                    }
                    for kind in KINDS
                ],
            },
            **{kind.value: _step(kind.value, spec) for kind, spec in STEPS.items()},
        },
    }


def _step(kind: str, spec: Any) -> Schema:
    schema = model.json_schema(spec)
    config = {"$ref": "#/$defs/config"}
    schema["properties"] |= {
        "type": {"const": kind, "description": schema["description"]},
        "config": config,
        OLD_CONFIG: {**config, "deprecated": True},
    }
    return {**schema, "required": [*schema["required"], "type"]}


def _config() -> Schema:
    properties: Schema = {
        "mode": _choice([mode.value for mode in StepMode], "Who performs the step."),
        "autonomy": _choice([item.value for item in AutonomyLevel], "How far an agent's answer is trusted."),
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
        "review": {"enum": ["person", None], "description": "Who reads text for people before it is used."},
        "review_within": {
            "anyOf": [{"type": ["string", "null"]}, {"type": "number", "exclusiveMinimum": 0}],
            "description": "How long a draft waits for a person, such as 4h; then the handler's is used.",
        },
        "prose": {"enum": ["free", None], "description": "An approver's text for people is used unread."},
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


def _or_null(schema: Schema) -> Schema:
    """The schema extended by null: a key without a value is left out."""
    kind = schema["type"]
    return {**schema, "type": [*([kind] if isinstance(kind, str) else kind), "null"]}


def _name(description: str) -> Schema:
    return {"type": ["string", "null"], "pattern": r"\S", "description": description}


def _choice(options: list[str], description: str) -> Schema:
    return {"enum": [*options, None], "description": description}
