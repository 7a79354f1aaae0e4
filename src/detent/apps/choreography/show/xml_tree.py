"""XML with byte positions, so that a part of a file can be replaced and the rest kept to the byte.

Nothing is fetched or expanded: a document type, and with it every entity of its own, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

DEEPEST = 64


class XmlRefused(ValueError):
    """A text is not XML, or not safe to read. The message names the line."""


@dataclass(slots=True)
class Node:
    """An element of a file, and where it stands."""

    tag: str
    attributes: dict[str, str]
    line: int
    start: int
    """Byte of its `<`."""
    inner: int = 0
    """Byte behind its opening tag."""
    close: int = 0
    """Byte at which its closing tag begins; equal to `inner` where it closes itself."""
    end: int = 0
    """Byte behind it."""
    text: str = ""
    """The text in it, that of its children left out."""
    children: list[Node] = field(default_factory=list)

    def all(self, tag: str) -> list[Node]:
        """Its children of a tag."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> Node | None:
        """Its first child of a tag."""
        return next((child for child in self.children if child.tag == tag), None)

    def walk(self) -> Iterator[Node]:
        """It and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed file."""

    source: bytes
    root: Node


def parse_xml(source: bytes) -> Tree:
    """Parse XML in UTF-8.

    Raises:
        XmlRefused: it is malformed, declares a document type or another encoding, or nests too deep.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.ordered_attributes = True
    stack: list[Node] = []
    roots: list[Node] = []
    texts: list[list[str]] = []

    def refuse(message: str) -> XmlRefused:
        return XmlRefused(f"line {parser.CurrentLineNumber}: {message}")

    def declared(version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.upper() not in ("UTF-8", "US-ASCII"):
            raise refuse(f"the encoding {encoding} is not read. Save the file as UTF-8, as xLights does.")

    def doctype(*_: object) -> None:
        raise refuse("a document type (DTD) is refused. Remove the <!DOCTYPE …> and its entities.")

    def start(tag: str, pairs: list[str]) -> None:
        if len(stack) >= DEEPEST:
            raise refuse(f"elements are nested more than {DEEPEST} levels deep.")
        node = Node(
            tag,
            dict(zip(pairs[::2], pairs[1::2], strict=True)),
            parser.CurrentLineNumber,
            parser.CurrentByteIndex,
        )
        (stack[-1].children if stack else roots).append(node)
        stack.append(node)
        texts.append([])

    def end(_: str) -> None:
        node = stack.pop()
        node.text = "".join(texts.pop())
        # expat reports the end of an element that closes itself at the `<` or behind the `/>`.
        at = parser.CurrentByteIndex
        node.inner = _tag_end(source, node.start)
        closes_itself = source[node.inner - 2 : node.inner] == b"/>"
        node.close = node.inner if closes_itself else at
        node.end = node.inner if closes_itself else source.index(b">", at) + 1

    def characters(text: str) -> None:
        texts[-1].append(text)

    parser.XmlDeclHandler = declared
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = doctype
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    try:
        if b"\0" in source[:4]:  # also without the mark at its beginning
            raise XmlRefused("line 1: the file is UTF-16. Save it as UTF-8, as xLights does.")
        parser.Parse(source, True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, str(error))
        raise XmlRefused(f"line {error.lineno}: the XML is malformed: {reason}.") from error
    return Tree(source, roots[0])


_TAG = re.compile(rb"""(?:[^>"']++|"[^"]*+"|'[^']*+')*+>""")


def _tag_end(source: bytes, start: int) -> int:
    """Byte behind the opening tag at `start`; a `>` inside a quoted attribute does not end it."""
    match = _TAG.match(source, start)
    assert match is not None  # expat has read it
    return match.end()


def element(
    tag: str,
    attributes: Iterable[tuple[str, object]] = (),
    children: Iterable[str] = (),
    text: str = "",
    depth: int = 0,
) -> str:
    """An element as text, indented by two blanks a level."""
    pairs = "".join(f" {name}={attribute(str(value))}" for name, value in attributes)
    blanks = "  " * depth
    rows = list(children)
    if rows:
        return "\n".join([f"{blanks}<{tag}{pairs}>", *rows, f"{blanks}</{tag}>"])
    if text:
        return f"{blanks}<{tag}{pairs}>{escape(printable(text))}</{tag}>"
    return f"{blanks}<{tag}{pairs}/>"


def attribute(value: str) -> str:
    """A quoted attribute value; line ends survive."""
    return quoteattr(printable(value), {"\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})


_UNPRINTABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return _UNPRINTABLE.sub("", text)
