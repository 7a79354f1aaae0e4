"""Where the body of a text element ends, in a text that is not well-formed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from detent.flows.notebook.payloads.aliases import tag_name
from detent.flows.notebook.payloads.code_text import code_of, ends_in_comment, syntax_problem
from detent.flows.notebook.payloads.edit_distance import edit_distance
from detent.flows.notebook.payloads.vocabulary import CODE, Vocabulary
from detent.flows.notebook.payloads.xml_text import CDATA_END

MOST_EDITS = 2
MOST_TRIED = 100
"""Closing tags after which code is tried."""
MOST_PARSED = 4_194_304
"""Characters of code parsed to find the closing tag of one element."""

_TAG = re.compile(r"<!\[CDATA\[|<(/?)\s*([A-Za-z_][\w.:-]*)(\s*>)?")
_FENCE_OR_END = re.compile(r"\s*(?:`{3,}\s*)?\Z")


@dataclass(frozen=True, slots=True)
class Closing:
    """The closing tag of a text element."""

    start: int
    """Where the body ends."""
    end: int
    """Where the tag ends."""
    rules: frozenset[str] = frozenset()
    """The rules of repair that were needed to find it."""


@dataclass(frozen=True, slots=True)
class CodeEnd:
    """The closing tag of a code element, if there is one, and what became of the code."""

    closing: Closing | None
    code: str = ""
    problem: str | None = None
    """Why the first reading of the code is no Python."""


def near(closing: str, tag: str) -> bool:
    """Whether a closing tag may be a misspelling of the tag it should close."""
    return 0 < edit_distance(closing, tag, MOST_EDITS) <= MOST_EDITS


def closing_of_text(
    text: str, tag: str, start: int, enclosing: Collection[str], vocabulary: Vocabulary
) -> Closing | None:
    """The closing tag that a known tag or the end follows (R5), or one that is misspelt (R6).

    The search ends where an enclosing element does: a body never swallows its neighbours. None: not found.
    """
    nested = 0
    opened: set[str] = set()
    fallback: Closing | None = None
    rules: set[str] = set()
    for match in _tags(text, start):
        name = tag_name(match[2])
        if not match[1]:
            opened.add(name)
            if name == tag:
                nested += 1
            if name in vocabulary.tags:
                rules.add("R5")
            continue
        ends = match[3] is not None
        if name == tag and nested:
            nested -= 1
        elif name == tag and ends:
            if vocabulary.follower.match(text, match.end()):
                return Closing(match.start(), match.end(), frozenset(rules))
            rules.add("R5")
            fallback = Closing(match.start(), match.end(), frozenset(rules))
        elif name in enclosing:
            return fallback
        elif ends and name not in opened and near(name, tag) and vocabulary.follower.match(text, match.end()):
            return Closing(match.start(), match.end(), frozenset({*rules, "R6"}))
    return fallback


def closing_of_code(text: str, start: int, root: str, vocabulary: Vocabulary) -> CodeEnd:
    """The first closing tag before which the code is Python.

    Python has no place for such a tag outside of strings and comments. Code that ends within a string does
    not parse; a comment is only believed to be over where nothing else can have been meant.
    """
    first: str | None = None
    rules: set[str] = set()
    tried = parsed = 0
    for match in _tags(text, start):
        name = tag_name(match[2])
        if not match[1] or match[3] is None or not (name == CODE or near(name, CODE)):
            continue
        tried, parsed = tried + 1, parsed + match.start() - start
        if tried > MOST_TRIED or parsed > MOST_PARSED:
            break
        code, rule = code_of(text[start : match.start()])
        found = syntax_problem(code)
        if found is None and (not ends_in_comment(code) or _is_clear(text, match.end(), root, vocabulary)):
            if name != CODE:
                rules.add("R6")
            if rule is not None:
                rules.add(rule)
            return CodeEnd(Closing(match.start(), match.end(), frozenset(rules)), code)
        first = first or found
        rules.add("R5")
    return CodeEnd(None, problem=first)


def _is_clear(text: str, position: int, root: str, vocabulary: Vocabulary) -> bool:
    """Whether what follows a comment that ends at a closing tag cannot be the rest of that comment's code."""
    if not vocabulary.follower.match(text, position):
        return False
    after = next((match for match in _tags(text, position) if tag_name(match[2]) == CODE), None)
    if after is not None and after[1]:
        return False
    last = text.rfind(f"</{root}>")
    return last >= position and _FENCE_OR_END.match(text, last + len(root) + 3) is not None


def _tags(text: str, position: int) -> Iterator[re.Match[str]]:
    """Everything that looks like a tag, sections of CDATA apart."""
    sections = True
    while (match := _TAG.search(text, position)) is not None:
        position = match.end()
        if match[2] is not None:
            yield match
        elif sections:
            end = text.find(CDATA_END, position)
            sections = end >= 0
            position = end + len(CDATA_END) if sections else position
