"""Strict reading of XML: elements with lines, texts as they were written, and the limits of a payload."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from detent.authoring.problem import Problem
from detent.flows.notebook.payloads.aliases import tag_name
from detent.flows.notebook.payloads.payload_error import FORBIDDEN, LIMIT, NO_PAYLOAD, SYNTAX, problem, quoted
from detent.flows.notebook.payloads.vocabulary import Vocabulary, vocabulary_of
from detent.flows.notebook.payloads.xml_text import SPACE, body_text

MOST_BYTES = 1_048_576
DEEPEST = 32
MOST_ELEMENTS = 5000

_START_TAG = re.compile(rb"<[^\"'>]*(?:\"[^\"]*\"[^\"'>]*|'[^']*'[^\"'>]*)*>")


@dataclass(slots=True)
class Element:
    """An element, with tag and attribute names in their canonical forms."""

    tag: str
    line: int
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    raw: str = ""
    """The body as it was written, of an element without child elements."""
    text: str = ""
    """The text of the body, trimmed, entities and CDATA resolved; of others the text beside the children."""


@dataclass(frozen=True, slots=True)
class Document:
    """A payload's elements."""

    root: Element
    vocabulary: Vocabulary
    renamed: bool
    """Whether a tag or attribute was written under another of its names (R8)."""


class NotXml(Exception):
    """A text is not the XML of a payload."""

    def __init__(self, found: Problem, *, final: bool = False) -> None:
        self.problem = found
        self.final = final
        """Whether it is refused, whatever could be repaired."""
        super().__init__(str(found))


def parse(text: str) -> Document:
    """The elements of a text whose root is one of a payload, with nothing around it.

    Raises:
        NotXml: the text is not well-formed, has another root, is beyond a limit, or declares a document type.
    """
    return _Parser(text).document()


class _Parser:
    """One pass of expat. Texts are cut out of the source, so that markup in them stays what it is."""

    def __init__(self, text: str) -> None:
        self._data = text.encode("utf-8")
        self._open: list[tuple[Element, int]] = []
        """Open elements, each with the offset of its body."""
        self._inside = 0
        """Levels of markup within a text element; 0 outside."""
        self._count = 0
        self._root: Element | None = None
        self._vocabulary: Vocabulary | None = None
        self._renamed = False
        self._expat = expat.ParserCreate("utf-8")
        self._expat.buffer_text = True
        self._expat.buffer_size = 65_536
        self._expat.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._characters
        self._expat.StartDoctypeDeclHandler = self._doctype
        self._expat.EntityDeclHandler = self._doctype
        self._expat.ProcessingInstructionHandler = self._instruction

    def document(self) -> Document:
        try:
            self._expat.Parse(self._data, True)
        except expat.ExpatError as error:
            message = expat.ErrorString(error.code) or "not well-formed"
            raise NotXml(problem(SYNTAX, message, self._path(), error.lineno)) from None
        assert self._root is not None
        assert self._vocabulary is not None
        return Document(self._root, self._vocabulary, self._renamed)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._inside:
            self._inside += 1
            return
        if ":include" in tag:
            raise self._refused("holds a reference to another document")
        self._count += 1
        if self._count > MOST_ELEMENTS:
            raise self._beyond(f"has more than {MOST_ELEMENTS} elements")
        if len(self._open) >= DEEPEST:
            raise self._beyond(f"is nested more than {DEEPEST} levels deep")
        name = self._canonical(tag)
        if self._vocabulary is None:
            self._vocabulary = vocabulary_of(tag)
            if self._vocabulary is None:
                raise NotXml(problem(NO_PAYLOAD, f"no payload has the root <{quoted(tag)[1:-1]}>", "", 1))
        named = {self._canonical(key): value for key, value in attributes.items()}
        element = Element(name, self._expat.CurrentLineNumber, named)
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self._root = element
        start = self._expat.CurrentByteIndex
        match = _START_TAG.match(self._data, start)
        self._open.append((element, match.end() if match else start))
        self._inside = 1 if name in self._vocabulary.texts else 0

    def _end(self, _: str) -> None:
        if self._inside > 1:
            self._inside -= 1
            return
        self._inside = 0
        element, start = self._open.pop()
        if element.children:
            element.text = element.text.strip(SPACE)
            return
        end = self._expat.CurrentByteIndex
        element.raw = self._data[start:end].decode("utf-8") if end > start else ""
        element.text = body_text(element.raw)

    def _characters(self, text: str) -> None:
        if self._open and not self._inside:
            self._open[-1][0].text += text

    def _doctype(self, *_: object) -> None:
        raise self._refused("declares a document type or an entity")

    def _instruction(self, target: str, _: str) -> None:
        if target == "xml-stylesheet" and not self._inside:
            raise self._refused("holds a reference to another document")

    def _canonical(self, name: str) -> str:
        canonical = tag_name(name)
        self._renamed = self._renamed or canonical != name
        return canonical

    def _refused(self, why: str) -> NotXml:
        found = problem(FORBIDDEN, f"the text {why}", self._path(), self._expat.CurrentLineNumber)
        return NotXml(found, final=True)

    def _beyond(self, why: str) -> NotXml:
        return NotXml(problem(LIMIT, f"the text {why}", "", self._expat.CurrentLineNumber), final=True)

    def _path(self) -> str:
        return "/".join(element.tag for element, _ in self._open)
