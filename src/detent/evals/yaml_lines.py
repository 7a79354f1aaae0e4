"""YAML as plain values, with the line of every key and item.

Keys are the text as it is written and dates stay text, so that a case says what it seems to say. Which
scalars were written without quotes is kept too: `03` is a number to YAML, and no name of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from detent.engine.yaml_loader import safe_loader
from detent.kernel.plain import to_plain
from detent.kernel.yaml_words import yaml_trouble

Way = tuple[str, ...]
"""Keys and indices that lead to a value."""


class YamlFault(Exception):
    """The text is no YAML that can be used."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


@dataclass(slots=True)
class Document:
    """A text read as YAML."""

    value: Any = None
    lines: dict[Way, int] = field(default_factory=dict)
    bare: dict[Way, str] = field(default_factory=dict)
    """Numbers written without quotes, as keys or values, with how they are written."""
    twice: list[tuple[Way, int]] = field(default_factory=list)
    """Keys said twice, with the line of the second."""


def read(text: str) -> Document:
    """Read one document; an empty text is null."""
    import yaml

    document = Document()
    loader: Any = None
    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if node is not None:
            document.lines[()] = node.start_mark.line + 1
            document.value = _Builder(loader, document).build(node, ())
    except yaml.YAMLError as error:
        line, said = yaml_trouble(error, text)
        raise YamlFault(line, f"not valid YAML: {said}") from error
    except RecursionError as error:
        raise YamlFault(1, "nested too deeply") from error
    finally:
        if loader is not None:
            loader.dispose()
    return document


@cache
def _loader() -> Any:
    """A safe loader that leaves dates as the text they are written as."""
    import yaml

    class Loader(safe_loader()):  # type: ignore[misc]
        yaml_implicit_resolvers = {  # noqa: RUF012 - read by yaml as it is
            first: [(tag, regexp) for tag, regexp in rules if tag != "tag:yaml.org,2002:timestamp"]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


class _Builder:
    """Makes values of nodes."""

    def __init__(self, loader: Any, document: Document) -> None:
        self._loader = loader
        self._document = document

    def build(self, node: Any, way: Way) -> Any:
        """The value of a node."""
        if node.id == "scalar":
            return self._scalar(node, way)
        return self._mapping(node, way) if node.id == "mapping" else self._list(node, way)

    def _scalar(self, node: Any, way: Way) -> Any:
        self._note(node, way)
        value = self._loader.construct_object(node, deep=True)
        if isinstance(value, bytes):
            raise YamlFault(node.start_mark.line + 1, "binary values cannot be used; write text")
        if isinstance(value, float):
            return value
        return value if value is None else to_plain(value)

    def _list(self, node: Any, way: Way) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            here = (*way, str(index))
            self._document.lines[here] = item.start_mark.line + 1
            values.append(self.build(item, here))
        return values

    def _mapping(self, node: Any, way: Way) -> Mapping[str, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.id != "scalar":
                raise YamlFault(key.start_mark.line + 1, "a key must be text")
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                self._document.twice.append(((*way, key.value), key.start_mark.line + 1))
            seen.add(key.value)
        self._loader.flatten_mapping(node)
        values: dict[str, Any] = {}
        for key, value in node.value:
            here = (*way, key.value)
            self._document.lines[here] = key.start_mark.line + 1
            self._note(key, here)
            values[key.value] = self.build(value, here)
        return values

    def _note(self, node: Any, way: Way) -> None:
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") or node.value.isdigit()
        if node.style is None and number:
            self._document.bare[way] = node.value
