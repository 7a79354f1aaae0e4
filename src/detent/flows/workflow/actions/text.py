"""Actions on texts: finding, filling in, reading and writing JSON and YAML. They touch nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypedDict

from detent.authoring.templates import fill
from detent.engine.context import StepContext
from detent.engine.step_failures import StepFailed
from detent.flows.workflow.registry import action
from detent.kernel.errors import nearest

LONGEST = 5_000_000
"""Characters of a text that is read or filled in."""
DEEPEST = 200
"""Levels of a value that is read or written."""


class Matches(TypedDict):
    matches: list[str | None]
    """In order; null where a group took no part in a match."""
    first: str | None


class Text(TypedDict):
    text: str


class Value(TypedDict):
    value: Any


class Checked(TypedDict):
    valid: bool
    problems: list[str]
    """`/place: what was expected there`."""


@action(
    "extract_text",
    intent="Find the parts of a text that fit a pattern and return them in order.",
    queries=["text.find"],
    output_schema=Matches,
)
async def extract_text(ctx: StepContext, text: str, pattern: str, group: int | str = 0) -> Matches:
    """Up to 10000 matches of a regular expression; one that runs away is given up."""
    found = (await ctx.query("text.find", text=text, pattern=pattern, group=group))["found"]
    return {"matches": found, "first": found[0] if found else None}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")


@action(
    "render_template",
    intent="Fill a text template with the given values, leaving no placeholder open.",
    output_schema=Text,
)
async def render_template(template: str, values: dict[str, Any]) -> Text:
    """Fill in `{{ name.path }}`; list items go by number. A value that is missing is an error."""
    if len(template) > LONGEST:
        raise StepFailed(f"A template has at most {LONGEST:,} characters.")
    problems: list[str] = []

    def value_of(name: str, line: int) -> str:
        if not _NAME.fullmatch(name):
            problems.append(f"line {line}: a placeholder is written {{{{ name.path }}}}")
            return ""
        try:
            return _shown(_dug(values, name))
        except StepFailed as missing:
            problems.append(f"line {line}: {missing}")
            return ""

    text = fill(template, value_of)
    for rest in re.finditer(r"\{\{|\}\}", fill(template, lambda name, line: "")):
        problems.append(f"'{rest[0]}' stands alone")
        break
    if problems:
        raise StepFailed(f"The template cannot be filled: {'; '.join(problems[:10])}.")
    return {"text": text}


def _dug(values: Any, name: str) -> Any:
    here = values
    for part in name.split("."):
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        elif isinstance(here, list) and part.isdigit() and int(part) < len(here):
            here = here[int(part)]
        else:
            there = [str(key) for key in here] if isinstance(here, Mapping) else []
            raise StepFailed(f"there is no value '{name}'{nearest(part, there).rstrip('?')}")
    return here


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


@action("parse_json", intent="Turn JSON text into the value it describes.", output_schema=Value)
async def parse_json(text: str) -> Value:
    """Strict JSON: no NaN, no infinities, no key twice."""
    _bounded(text)
    try:
        value = json.loads(text, parse_constant=_no_number, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise StepFailed(
            f"This is not JSON: {error.msg} on line {error.lineno}, column {error.colno}."
        ) from None
    except ValueError as error:
        raise StepFailed(f"This JSON cannot be used: {error}.") from None
    except RecursionError:
        raise StepFailed(f"This JSON is nested more than {DEEPEST} levels deep.") from None
    _shallow(value)
    return {"value": value}


def _no_number(_: str) -> Any:
    raise ValueError("it holds NaN or an infinite number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is defined twice in one object")
    return found


@action(
    "dump_json", intent="Write a value as JSON text that reads back to the same value.", output_schema=Text
)
async def dump_json(value: Any, indent: int | None = 2) -> Text:
    """JSON text; without `indent` it is compact."""
    _shallow(value)
    separators = (",", ":") if indent is None else None
    return {
        "text": json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    }


@action("parse_yaml", intent="Turn YAML text into the plain value it describes.", output_schema=Value)
async def parse_yaml(text: str) -> Value:
    """YAML 1.2, safe: no tags, no key twice, aliases bounded, one document."""
    from detent.authoring.document import read_document

    read = read_document(text.encode("utf-8", "surrogatepass"), "text")
    if read.problems:
        first = read.problems[0]
        more = f" ({len(read.problems) - 1} more)" if len(read.problems) > 1 else ""
        place = first.place
        raise StepFailed(f"line {place.line}, column {place.column}: {first.message}{more}")
    return {"value": read.value}


@action(
    "dump_yaml", intent="Write a value as YAML text that reads back to the same value.", output_schema=Text
)
async def dump_yaml(value: Any) -> Text:
    """YAML text; texts that YAML 1.1 or 1.2 would take for something else are quoted."""
    _shallow(value)
    import yaml

    text = yaml.dump(value, Dumper=_dumper(), allow_unicode=True, sort_keys=False, width=100)
    # A value written at the top gets a line of its own that says that it is over.
    return {"text": text.removesuffix("...\n")}


def _dumper() -> Any:
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes every place out, and quotes what only looks like text."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    Plain.yaml_implicit_resolvers = {
        first: list(rules) for first, rules in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }
    Plain.add_implicit_resolver(
        "tag:yaml.org,2002:int", re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+|[-+]?[0-9]+"), list("-+0123456789")
    )
    number = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
    Plain.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    Plain.add_representer(str, _represented)
    return Plain


def _represented(dumper: Any, text: str) -> Any:
    # Characters that YAML 1.2 does not take as they are, or takes for line ends, are spelled out.
    odd = any(not (char.isprintable() or char in "\n\t") or char in "\x85\u2028\u2029\ufeff" for char in text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if odd or "\t" in text else None)


@action(
    "check_schema",
    intent="Decide whether a value fits a JSON Schema and list every place where it does not.",
    output_schema=Checked,
)
async def check_schema(value: Any, schema: dict[str, Any]) -> Checked:
    """What is wrong with a value under a JSON Schema; a schema that is none fails the step."""
    from detent.engine import schemas

    schemas.check_schema(schema)
    problems = schemas.misfits(value, schema, most=1000)
    return {"valid": not problems, "problems": problems}


def _bounded(text: str) -> None:
    if len(text) > LONGEST:
        raise StepFailed(f"A text has at most {LONGEST:,} characters here, not {len(text):,}.")


def _shallow(value: Any) -> None:
    """Refuse what is nested so deeply that nothing after this could handle it."""
    here, depth = [value], 0
    while here:
        depth += 1
        if depth > DEEPEST:
            raise StepFailed(f"The value is nested more than {DEEPEST} levels deep.")
        here = [
            inner
            for one in here
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
