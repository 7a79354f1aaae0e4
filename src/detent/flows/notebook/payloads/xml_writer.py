"""Writing XML: elements with indentation, escaped, attributes in the order in which they are given."""

from __future__ import annotations

from collections.abc import Mapping

from detent.flows.notebook.payloads.code_text import tidied
from detent.flows.notebook.payloads.xml_text import escaped, escaped_attribute, guarded


class XmlWriter:
    """Writes elements, two spaces to a level."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open: list[str] = []

    def text(self) -> str:
        """Everything that was written."""
        return "\n".join([*self._lines, ""])

    def open(self, tag: str, **attributes: str | None) -> None:
        """Begin an element; an attribute that is None is left out, a trailing `_` of a name dropped."""
        self._line(f"<{tag}{_attributes(attributes)}>")
        self._open.append(tag)

    def close(self, times: int = 1) -> None:
        """End the innermost open elements."""
        for _ in range(times):
            tag = self._open.pop()
            self._line(f"</{tag}>")

    def empty(self, tag: str, **attributes: str | None) -> None:
        """An element without a body."""
        self._line(f"<{tag}{_attributes(attributes)}/>")

    def element(self, tag: str, text: str, **attributes: str | None) -> None:
        """An element of text, on one line if the text is."""
        self._line(f"<{tag}{_attributes(attributes)}>{guarded(escaped(text))}</{tag}>")

    def optional(self, tag: str, text: str) -> None:
        """An element that is left out if its text is empty."""
        if text:
            self.element(tag, text)

    def code(self, tag: str, code: str) -> None:
        """Code between lines of its own."""
        body = escaped(code)
        self._line(f"<{tag}>\n{body if tidied(body) == body else guarded(body)}\n</{tag}>")

    def _line(self, line: str) -> None:
        self._lines.append("  " * len(self._open) + line)


def _attributes(attributes: Mapping[str, str | None]) -> str:
    given = ((name.rstrip("_"), text) for name, text in attributes.items() if text is not None)
    return "".join(f' {name}="{escaped_attribute(text)}"' for name, text in given)


def true_or_false(value: bool) -> str:
    """A truth value as attributes spell it."""
    return "true" if value else "false"
