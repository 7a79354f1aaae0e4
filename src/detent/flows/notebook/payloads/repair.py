"""The one repair pass over a text that is not well-formed XML: rules R1 to R7.

The result is XML that says the same, line for line, so that the strict reader can name lines. Nothing is
invented: where a part could be missing, the text is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from detent.flows.notebook.payloads.aliases import tag_name
from detent.flows.notebook.payloads.closing_tag import Closing, closing_of_code, closing_of_text, near
from detent.flows.notebook.payloads.element import NotXml
from detent.flows.notebook.payloads.kinds import PayloadKind
from detent.flows.notebook.payloads.payload_error import CODE, CUT, FORBIDDEN, NO_PAYLOAD, SYNTAX, problem
from detent.flows.notebook.payloads.start_tag import BrokenTag, StartTag, read_start_tag
from detent.flows.notebook.payloads.vocabulary import CODE as CODE_TAG
from detent.flows.notebook.payloads.vocabulary import ROOTS, VOCABULARIES
from detent.flows.notebook.payloads.xml_text import (
    CDATA_END,
    CDATA_START,
    ENTITY,
    decoded,
    escaped,
    is_character_data,
)

MOST_MENTIONS = 5
"""Mentions of the root's tag in prose before the root itself."""

_DECLARED = re.compile(r"<!\s*(?:DOCTYPE|ENTITY)|<\?xml-stylesheet", re.IGNORECASE)
_THOUGHTS = re.compile(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_XML_DECLARATION = re.compile(r"\s*(?:<\?xml\s[^>]*\?>\s*)?\Z")
_MARK = re.compile(r"[<&]")
_TAG = re.compile(r"<(/?)\s*([A-Za-z_][\w.:-]*)")
_CLOSE = re.compile(r"\s*>")
_PARTIAL = re.compile(r"<[/!]?[\w.:-]*\Z")
_ITEMS = frozenset({"stage", "step"})
"""Elements that may stand in the root itself, one after another: after one of them another may be missing."""
_NEEDED: dict[PayloadKind, tuple[str, ...]] = {
    "T3": ("inputs", "outputs", "acceptance"),
    "T4": (CODE_TAG,),
    "T5": ("outputs_tracking_update",),
}
"""Children of the root without which a text that was cut says nothing: they may have been to come."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired text."""

    text: str
    rules: frozenset[str]
    """The rules that were used."""


def repaired(text: str, expected: PayloadKind | None = None) -> Repaired:
    """The XML that a text was meant to be.

    Raises:
        NotXml: no rule applies, a part would be lost, or the text declares a document type or an entity.
    """
    return _Repair(text, expected).result()


class _Repair:
    def __init__(self, text: str, expected: PayloadKind | None) -> None:
        roots = [root for root, kind in ROOTS.items() if expected in (None, kind)]
        roots += ["behaviour"] if "behavior" in roots else []
        self._root_pattern = re.compile(rf"<({'|'.join(roots)})(?=[\s/>])")
        self._text = text
        self._at = 0
        self._written: list[str] = []
        self._rules: set[str] = set()
        self._open: list[tuple[str, str]] = []
        """Open elements: the canonical tag, and the tag as it is written."""
        self._children: list[str] = []
        """The children that the root has so far."""
        self._mentions = 0

    def result(self) -> Repaired:
        self._begin()
        while self._open:
            mark = _MARK.search(self._text, self._at)
            if mark is None:
                self._stray(len(self._text))
                self._cut_off()
            else:
                self._stray(mark.start())
                self._markup()
        self._end()
        return Repaired("".join(self._written), frozenset(self._rules))

    # -- before and after the root --------------------------------------------------------------------------

    def _begin(self) -> None:
        thoughts = _THOUGHTS.match(self._text)
        root = self._root_pattern.search(self._text, thoughts.end() if thoughts else 0)
        if root is None:
            what = " or ".join(f"<{tag}>" for tag in re.findall(r"\w+", self._root_pattern.pattern)[:-1][:7])
            raise NotXml(problem(NO_PAYLOAD, f"the text holds no {what}"))
        self._begin_at(root)

    def _begin_at(self, root: re.Match[str]) -> None:
        before = self._text[: root.start()]
        if declared := _DECLARED.search(before):
            self._at = declared.start()
            self._refuse_declaration()
        if not _XML_DECLARATION.match(before):
            self._rules.add("R1")
        self._written = ["\n" * before.count("\n")]
        self._at = root.start()
        tag = tag_name(root[1])
        self._vocabulary = VOCABULARIES[ROOTS[tag]]
        start = self._start_tag(root)
        if start is None or start.closed:
            self._refuse(NO_PAYLOAD, f"<{tag}> is empty")
        self._open = [(tag, root[1])]
        self._children = []

    def _end(self) -> None:
        rest = self._text[self._at :]
        if not rest.strip():
            return
        if declared := _DECLARED.search(rest):
            self._at += declared.start()
            self._refuse_declaration()
        if self._root_pattern.search(rest):
            self._refuse(NO_PAYLOAD, "the text holds more than one payload")
        self._rules.add("R1")

    # -- between elements -----------------------------------------------------------------------------------

    def _stray(self, end: int) -> None:
        self._write(escaped(self._text[self._at : end]))
        self._at = end

    def _markup(self) -> None:
        """Whatever begins at a `<` or `&` between elements."""
        text, at = self._text, self._at
        if text[at] == "&":
            entity = ENTITY.match(text, at)
            if entity is None or decoded(entity[0]) == entity[0]:
                self._escape("R2")
            else:
                self._write(entity[0])
                self._at = entity.end()
        elif text.startswith("<!--", at):
            self._skip("<!--", "-->")
        elif text.startswith(CDATA_START, at):
            end = text.find(CDATA_END, at)
            if end < 0:
                self._escape("R3")
            else:
                self._at = at + len(CDATA_START)
                self._stray(end)
                self._at = end + len(CDATA_END)
        elif _DECLARED.match(text, at):
            self._refuse_declaration()
        elif text.startswith("<?", at):
            self._skip("<?", "?>")
        elif _PARTIAL.match(text, at):
            self._cut_off()
        elif tag := _TAG.match(text, at):
            self._tag(tag)
        else:
            self._escape("R3")

    def _tag(self, match: re.Match[str]) -> None:
        tag = tag_name(match[2])
        if tag.endswith(":include"):
            self._refuse(FORBIDDEN, "the text holds a reference to another document", final=True)
        if match[1]:
            self._closing(match, tag)
        elif tag not in self._vocabulary.tags:
            self._escape("R3")
        elif tag in self._vocabulary.roots and not (tag == "stages" and self._open[-1][0] == "workflow"):
            self._mentions += 1
            if self._children or self._mentions > MOST_MENTIONS:
                self._refuse(SYNTAX, f"<{tag}> stands inside <{self._open[-1][0]}>")
            root = self._root_pattern.match(self._text, self._at)
            if root is None:
                self._refuse(SYNTAX, f"<{tag}> is not ended")
            self._begin_at(root)  # the tag before was only mentioned
        else:
            self._element(match, tag)

    def _element(self, match: re.Match[str], tag: str) -> None:
        start = self._start_tag(match)
        if start is None:
            return
        if len(self._open) == 1:
            self._children.append(tag)
        if start.closed:
            return
        self._open.append((tag, match[2]))
        if tag == CODE_TAG:
            self._code()
        elif tag in self._vocabulary.texts:
            self._body(tag)

    def _start_tag(self, match: re.Match[str]) -> StartTag | None:
        """Write a start tag; None if the text ends in it."""
        name = match[match.lastindex or 1]
        try:
            start = read_start_tag(self._text, match.end())
        except BrokenTag as error:
            if not error.cut:
                self._refuse(SYNTAX, f"<{name}>: {error}")
            self._cut_off()
            return None
        self._rules |= start.rules
        self._write(start.written(name))
        self._write("\n" * self._text.count("\n", match.start(), start.end))
        self._at = start.end
        return start

    def _closing(self, match: re.Match[str], tag: str) -> None:
        end = _CLOSE.match(self._text, match.end())
        innermost = self._open[-1][0]
        if end is None and self._text[match.end() :].strip():
            self._escape("R3")
        elif end is None:
            self._cut_off()
        elif tag == innermost:
            self._close(end.end())
        elif near(tag, innermost) and all(tag != outer for outer, _ in self._open):
            self._rules.add("R6")
            self._close(end.end())
        elif tag in self._vocabulary.tags:
            self._refuse(SYNTAX, f"</{tag}> stands where <{innermost}> is open")
        else:
            self._escape("R3")

    # -- text elements --------------------------------------------------------------------------------------

    def _body(self, tag: str) -> None:
        enclosing = {outer for outer, _ in self._open[:-1]}
        closing = closing_of_text(self._text, tag, self._at, enclosing, self._vocabulary)
        if closing is None:
            self._unclosed_body(tag, enclosing)
            return
        self._write_text(self._text[self._at : closing.start], closing)
        self._close(closing.end)

    def _unclosed_body(self, tag: str, enclosing: set[str]) -> None:
        rest = self._text[self._at :]
        if any(re.search(rf"</\s*{re.escape(outer)}\s*>", rest) for outer in enclosing):
            self._refuse(SYNTAX, f"<{tag}> is not closed")
        known = [match for match in _TAG.finditer(rest) if self._vocabulary.knows(match[2]) and not match[1]]
        if known:
            self._refuse(CUT, f"<{tag}> is not closed, and the text is cut off")
        body = _PARTIAL.sub("", rest)
        self._write_text(body, None)
        self._at = len(self._text)
        self._cut_off()

    def _write_text(self, raw: str, closing: Closing | None) -> None:
        rules = set(closing.rules) if closing else set[str]()
        if not is_character_data(raw):
            plain = decoded(raw)
            if "&" in ENTITY.sub("", raw):
                rules.add("R2")
            if "<" in plain and not rules & {"R5"}:
                rules.add("R3")
            self._rules |= rules or {"R2"}
            self._write(escaped(plain))
        else:
            self._rules |= rules - {"R5"}
            self._write(raw)

    def _code(self) -> None:
        root = self._open[0][1]
        found = closing_of_code(self._text, self._at, root, self._vocabulary)
        if found.closing is None:
            closed = self._text.rstrip("` \n").endswith(f"</{root}>")
            why = f": {found.problem}" if found.problem else ""
            if closed:
                self._refuse(CODE, f"the code is not Python{why}")
            self._refuse(CUT, f"the text is cut off within code{why}")
        raw = self._text[self._at : found.closing.start]
        self._rules |= found.closing.rules
        if not is_character_data(raw):
            outside = decoded(raw)
            self._rules |= {"R2"} if "&" in ENTITY.sub("", outside) else set()
            self._rules |= {"R3"} if "<" in outside and "R5" not in found.closing.rules else set()
        blank = len(raw) - len(raw.lstrip(" \t\n"))
        before = raw.count("\n", 0, blank)
        after = raw.count("\n") - before - found.code.count("\n")
        self._write("\n" * before, escaped(found.code), "\n" * max(0, after))
        self._close(found.closing.end)

    # -- writing --------------------------------------------------------------------------------------------

    def _close(self, end: int) -> None:
        _, written = self._open.pop()
        self._write(f"</{written}>")
        self._at = end

    def _cut_off(self) -> None:
        """Close what is open in a text that ends too early (R7), if nothing can be missing in it."""
        tags = [tag for tag, _ in self._open]
        inner = next((tag for tag in tags if tag in self._vocabulary.lists), None)
        if inner is not None:
            self._refuse(CUT, f"the text is cut off within <{inner}>")
        if self._children and self._children[-1] in _ITEMS:
            self._refuse(CUT, f"the text is cut off after <{self._children[-1]}>, and another may be missing")
        for needed in _NEEDED.get(self._vocabulary.kind, ()):
            if needed not in self._children:
                self._refuse(CUT, f"the text is cut off before <{needed}>")
        self._rules.add("R7")
        self._at = len(self._text)
        while self._open:
            self._close(self._at)

    def _escape(self, rule: str) -> None:
        self._rules.add(rule)
        self._write(escaped(self._text[self._at]))
        self._at += 1

    def _skip(self, start: str, end: str) -> None:
        """Leave out a comment or an instruction."""
        found = self._text.find(end, self._at + len(start))
        if found < 0:
            self._escape("R3")
            return
        stop = found + len(end)
        self._write("\n" * self._text.count("\n", self._at, stop))
        self._at = stop

    def _write(self, *texts: str) -> None:
        self._written.extend(texts)

    def _refuse_declaration(self) -> NoReturn:
        self._refuse(FORBIDDEN, "the text declares a document type or an entity", final=True)

    def _refuse(self, code: str, why: str, *, final: bool = False) -> NoReturn:
        path = "/".join(tag for tag, _ in self._open)
        raise NotXml(problem(code, why, path, self._text.count("\n", 0, self._at) + 1), final=final)
