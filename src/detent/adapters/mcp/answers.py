"""Turns what a server sends into plain values, and limits the tool descriptions shown to an agent.

A server is not trusted: nothing it sends has a meaning for the engine. Keys that would have one (a stand-in
for a receipt, a reference to an offloaded value) get one more `$`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from detent.engine.schemas import check_schema
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode, encode, to_plain

LONGEST_TEXT = 500
"""Characters of a description shown to an agent."""
LARGEST_SCHEMA = 64 * 1024
"""Characters of a schema, as JSON."""
LARGEST_ANSWER = 1024 * 1024
"""Characters of an answer, as JSON."""

_OURS = ("$receipt", "$blob")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_VALUES = ("default", "const", "enum", "examples")


class Unreadable(ValueError):
    """An answer that cannot be kept; the message does not contain its values."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool as its server lists it."""

    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    """The reason its arguments cannot be checked; such a tool is not called."""


def listed(tool: Any) -> Listed:
    """A server's description of a tool, limited and checked."""
    description = cut(" ".join((tool.description or "").split()))
    try:
        schema = tame(tool.input_schema)
    except ConfigurationError as error:
        return Listed(description, problem=str(error))
    return Listed(description, schema)


def cut(text: str) -> str:
    """A server's prose, cut to the limit."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def tame(schema: Any) -> dict[str, Any]:
    """A server's JSON Schema, if it is valid and refers to nothing outside itself; its prose is cut."""
    try:
        plain = to_plain(schema)
        size = len(encode(plain))
    except (TypeError, ValueError, RecursionError):
        raise ConfigurationError("Its arguments are described by something that is no JSON.") from None
    if size > LARGEST_SCHEMA:
        raise ConfigurationError(f"Its JSON Schema has {size} characters; at most {LARGEST_SCHEMA} are read.")
    if not isinstance(plain, dict):
        raise ConfigurationError("Its arguments are not described by a JSON Schema.")
    if any(not reference.startswith("#") for reference in _references(plain)):
        # Checking arguments would fetch them from anywhere the server likes.
        raise ConfigurationError("Its JSON Schema refers to documents outside itself, which are not fetched.")
    check_schema(plain)
    tamed: dict[str, Any] = _without_prose(plain)
    return tamed


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in _REFERENCES and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: value
            if key in _VALUES
            else cut(value)
            if key in ("description", "title", "$comment") and isinstance(value, str)
            else _without_prose(value)
            for key, value in node.items()
        }
    return [_without_prose(item) for item in node] if isinstance(node, list) else node


def text_of(result: Any) -> str:
    """The text of an answer: what a failed tool says about itself."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def answer_of(result: Any) -> Any:
    """An answer as a plain value: its structured content, else its text, read as JSON if it is JSON."""
    try:
        value = to_plain(_value(result))
        size = len(encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"it cannot be kept as JSON ({type(error).__name__})") from None
    if size > LARGEST_ANSWER:
        raise Unreadable(f"it has {size} characters; at most {LARGEST_ANSWER} are taken")
    return _harmless(value)


def _value(result: Any) -> Any:
    if result.structured_content is not None:
        return result.structured_content
    blocks = [_block(block) for block in result.content]
    if all(isinstance(block, str) for block in blocks):
        return _read("\n".join(blocks)) if blocks else None
    return blocks[0] if len(blocks) == 1 else blocks


def _read(text: str) -> Any:
    """A text, or the list or mapping it contains. A lone number stays text: it may be a serial number."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value = decode(text)
        encode(value)  # NaN is decoded, but is no JSON
    except (ValueError, RecursionError):
        return text
    return value


def _block(block: Any) -> Any:
    """One part of an answer; only type and size of pictures, sounds and files."""
    if block.type == "text":
        return block.text
    if block.type in ("image", "audio"):
        return _file(block.mime_type, block.data)
    if block.type == "resource":
        inner = block.resource
        return inner.text if hasattr(inner, "text") else _file(inner.mime_type, inner.blob)
    link = {"$type": "resource_link", "uri": str(block.uri), "name": block.name}
    return link if block.size is None else {**link, "size": block.size}


def _file(kind: str | None, base64: str) -> dict[str, Any]:
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return {"$type": kind or "application/octet-stream", "size": size}


def _harmless(value: Any) -> Any:
    if isinstance(value, dict):
        return {f"${key}" if key in _OURS else key: _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, list) else value
