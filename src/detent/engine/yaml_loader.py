"""YAML's safe loader with bounds: how long a text is, how deep it goes, and what its aliases add up to.

A few lines of aliases of aliases stand for more values than any machine can hold, and whoever walks them
hangs. Readers of every kind of file load through here, and tell what is wrong as they tell any other mistake.
"""

from __future__ import annotations

from functools import cache
from typing import Any

LONGEST = 1_000_000
"""Characters of a text."""
DEEPEST = 100
"""Levels of mappings and lists."""
MOST_VALUES = 100_000
"""Values in a text, those behind aliases counted each time they are used."""


@cache
def safe_loader(longest: int = LONGEST) -> Any:
    """A `yaml.SafeLoader` class that raises a `yaml.YAMLError` with a place as soon as a bound is passed."""
    import yaml

    class Bounded(yaml.SafeLoader):
        def __init__(self, stream: Any) -> None:
            if len(stream) > longest:
                raise yaml.MarkedYAMLError(problem=f"the text has more than {longest:,} characters")
            super().__init__(stream)
            self._depth = 0
            self._values = 0
            self._sizes: dict[int, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            self._depth += 1
            if self._depth > DEEPEST:
                raise self._refused(
                    event, f"brackets stand inside each other too deeply (at most {DEEPEST} levels)"
                )
            before = self._values
            node = super().compose_node(parent, index)
            self._depth -= 1
            if isinstance(event, yaml.AliasEvent):
                if id(node) not in self._sizes:
                    raise self._refused(event, "a value contains itself")
                self._values += self._sizes[id(node)]
            else:
                self._values += 1
                self._sizes[id(node)] = self._values - before
            if self._values > MOST_VALUES:
                raise self._refused(event, f"it may hold {MOST_VALUES:,} values, aliases written out")
            return node

        def _refused(self, event: Any, what: str) -> Exception:
            return yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)

    return Bounded


def safe_load(text: str) -> Any:
    """The value of a YAML text; a `yaml.YAMLError` when it is none, or passes a bound."""
    import yaml

    return yaml.load(text, Loader=safe_loader())
