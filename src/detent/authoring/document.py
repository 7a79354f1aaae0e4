"""The only reader of YAML: turns the bytes of a file into plain values, each with its line and column.

It reads the core schema of YAML 1.2. Constructs that surprise or harm are refused: tags, merge keys,
duplicate keys, keys that are not text, infinite numbers, several documents. The text is read as a stream of
events, and reading stops as soon as a limit is passed, so that a file of aliases of aliases costs nothing.
Nothing in a file names a Python object, and nothing is ever evaluated.

Values are counted with aliases expanded: each mapping, list and scalar counts as one, keys do not count.

Step files, cases, settings and scripts were read as YAML 1.1 before; `was_yaml_1_1` warns of each scalar
whose meaning has changed.
"""

from __future__ import annotations

import errno
import math
import re
import stat
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from detent.authoring.problem import Place, Problem
from detent.authoring.yaml_errors import BRACES, yaml_trouble
from detent.engine import logger
from detent.kernel.errors import ConfigurationError

MOST_BYTES = 1024 * 1024
MOST_VALUES = 10_000
DATA_VALUES = 100_000
"""Most values in a data file, which may be a table."""
DEEPEST = 64
"""Most levels of nested mappings and lists."""
LONGEST_NUMBER = 100
"""Most digits of a number; longer ones are texts and belong in quotes."""
CODE = "E010"
"""Code of YAML problems, unless the format has a code of its own."""
CHANGED = "W008"
"""Code of a scalar that YAML 1.1 read differently."""


class Document(NamedTuple):
    """A YAML text, read."""

    value: Any
    """Plain values that share nothing; None if the file is empty or could not be read."""
    places: Mapping[str, Place]
    """Places of values, by path, such as `steps[2].kwargs.path`; the path of the whole is ''."""
    keys: Mapping[str, Place]
    """Places of keys, by the paths of their values."""
    problems: tuple[Problem, ...]

    def place(self, path: str) -> Place:
        """Place of a value; of its nearest existing parent if there is no such value."""
        while path and path not in self.places:
            path = above(path)
        return self.places[path]

    def key_place(self, path: str) -> Place:
        """Place of a key."""
        return self.keys.get(path) or self.place(path)

    def bare(self, path: str) -> str | None:
        """The spelling of an unquoted scalar: `010` for the number 10; None if it is quoted."""
        return _bare(self.places.get(path))

    def bare_key(self, path: str) -> str | None:
        """The spelling of an unquoted key; None if it is quoted."""
        return _bare(self.keys.get(path))

    def mark(self, path: str) -> Place:
        """Place to show for a value: its key, its item in a list, or its nearest existing parent."""
        while path and path not in self.keys and path not in self.places:
            path = above(path)
        return Place(*(self.keys.get(path) or self.places[path]))

    def log_warnings(self) -> None:
        """Log the warnings, for formats whose problems are all errors."""
        for problem in self.problems:
            if problem.severity == "warning":
                logger.warning("yaml.changed", place=str(problem.place), problem=problem.message)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that keep the file from being used."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def _bare(place: Place | None) -> str | None:
    return place.text if isinstance(place, Written) and not place.style else None


_PLAIN_KEY = re.compile(r"[\w-]+")


def file_bytes(file: Path, most: int = -1) -> bytes:
    """Return the content of a file, at most `most` bytes of it.

    Raises:
        OSError: it cannot be read, or it is a pipe or device, whose content may never end.
    """
    if not stat.S_ISREG(mode := file.stat().st_mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
    with file.open("rb") as stream:
        return stream.read(most)


def below(path: str, part: str | int) -> str:
    """Return the path of an item or key of the value at `path`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    if not _PLAIN_KEY.fullmatch(part):
        return f"{path}[{part!r}]"
    return f"{path}.{part}" if path else part


def path_of(*parts: str | int) -> str:
    """Return the path of a value from the keys and indices that lead to it."""
    path = ""
    for part in parts:
        path = below(path, part)
    return path


def above(path: str) -> str:
    """Return the path of the mapping or list that holds the value at `path`."""
    if path.endswith(("']", '"]')):
        opened = max(path.rfind("['"), path.rfind('["'))
        return path[: max(opened, 0)]
    return path[: max(path.rfind("."), path.rfind("["), 0)]


# -- places inside a text -----------------------------------------------------------------------------------

_ESCAPED = {"x": 4, "u": 6, "U": 10}


class Written(Place):
    """Place of a text and its spelling there, from which places inside the text are computed."""

    style: str
    """'' if unquoted, the quote character, or `|` and `>` for blocks."""
    lines: list[str]
    """Lines of the whole file."""
    end: tuple[int, int]
    """Line and column of its end, from 0."""
    text: str
    anchored: bool

    def inside(self, offset: int) -> Place:
        """Place of the character at `offset`: exact for texts of one line and for `|` blocks, only the line
        for others."""
        offset = max(0, min(offset, len(self.text)))
        if self.style in ("|", ">"):
            return self._in_block(offset)
        if self.end[0] == self.line - 1:
            return self._at(self.line, self.column + self._in_line(offset))
        return self._folded(offset, self.line - 1)

    def _at(self, line: int, column: int) -> Place:
        return Place(self.file, line, column)

    def _in_line(self, offset: int) -> int:
        raw = self.lines[self.line - 1][self.column - 1 : self.end[1]]
        at = 0
        if self.anchored:
            anchor = re.match(r"&\S+\s+", raw)
            at = anchor.end() if anchor else 0
        if self.style == "'":
            at += 1
            for _ in range(offset):
                at += 2 if raw.startswith("''", at) else 1
        elif self.style == '"':
            at += 1
            remaining = offset
            while remaining > 0 and at < len(raw):
                at += 1 if raw[at] != "\\" else _ESCAPED.get(raw[at + 1 : at + 2], 2)
                remaining -= 1
        else:
            at += offset
        return at

    def _in_block(self, offset: int) -> Place:
        before = self.text[:offset]
        row = self.line + before.count("\n")
        if self.style == ">" or row >= len(self.lines):
            return self._folded(offset, self.line)
        start = before.rfind("\n") + 1
        end = self.text.find("\n", start)
        line = self.text[start : end if end >= 0 else len(self.text)]
        margin = len(self.lines[row]) - len(line)
        return self._at(row + 1, max(0, margin) + offset - start + 1)

    def _folded(self, offset: int, first: int) -> Place:
        """Place in folded lines: the line is found by the lengths of the lines before it."""
        passed = 0
        last = min(max(self.end[0], first), len(self.lines) - 1)
        blank = True
        for row in range(first, last + 1):
            line = self.lines[row][self.column - 1 :] if row == self.line - 1 else self.lines[row]
            content = line.strip()
            if not content:
                passed += 1 if blank else 0
                blank = True
                continue
            blank = False
            if offset <= passed + len(content) or row == last:
                margin = len(self.lines[row]) - len(self.lines[row].lstrip())
                column = self.column if row == self.line - 1 else margin + 1
                return self._at(row + 1, column)
            passed += len(content) + 1
        return self._at(self.line, self.column)


# -- scalars ------------------------------------------------------------------------------------------------

_WORDS: Mapping[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class Unusable(Exception):
    """A scalar whose value cannot be represented."""


def core(text: str) -> Any:
    """Return the value of an unquoted scalar in the core schema of YAML 1.2.

    Raises:
        Unusable: the number is not finite or too long.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _NO_NUMBER.fullmatch(text):
        raise Unusable("numbers are finite here; put it in quotes if it is text.")
    kinds = (
        (_DECIMAL, 10, 0), (_OCTAL, 8, 2), (_HEXADECIMAL, 16, 2),
    )  # fmt: skip
    for pattern, base, skip in kinds:
        if pattern.fullmatch(text):
            _check_length(text)
            return int(text[skip:], base)
    if _FLOAT.fullmatch(text):
        _check_length(text)
        number = float(text)
        if not math.isfinite(number):
            raise Unusable("the number is too large; put it in quotes if it is text.")
        return number
    return text


def _check_length(text: str) -> None:
    if len(text) > LONGEST_NUMBER:
        raise Unusable(f"a number has {LONGEST_NUMBER} digits at most; put it in quotes if it is text.")


# -- scalars in YAML 1.1 ------------------------------------------------------------------------------------


@cache
def _loader_1_1() -> Any:
    """A YAML 1.1 loader for single scalars."""
    import yaml

    return yaml.SafeLoader("")


@lru_cache(maxsize=1024)
def _read_as_1_1(text: str) -> str | None:
    """The value of an unquoted scalar in YAML 1.1, as its `repr`; None if both versions agree.

    Dates count as agreeing: every format turned them back into their text.
    """
    if not text or len(text) > LONGEST_NUMBER or text[0] not in "+-.0123456789yYnNoO":
        return None  # both versions agree, or it is longer than any number
    import yaml

    loader = _loader_1_1()
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    if tag.endswith(("timestamp", "merge", "value")):
        return None
    try:
        return repr(loader.construct_object(yaml.ScalarNode(tag, text)))
    except (ValueError, yaml.YAMLError):
        return None  # YAML 1.1 refused it


def _changed(text: str, before: str, now: Any) -> str:
    """The warning about a scalar whose meaning has changed."""
    before = {"True": "true", "False": "false"}.get(before, before)
    old_meaning = f"the text {before}" if before.startswith("'") else before
    old_spelling, new_spelling = (
        f"{value} in quotes" if value.startswith("'") else value for value in (before, repr(now))
    )
    new_meaning = f"the text '{now}'" if isinstance(now, str) else f"the number {now}"
    return (
        f"{text} is {new_meaning} in YAML 1.2, but {old_meaning} in YAML 1.1, which was read here before. "
        f"Write {old_spelling}, or {new_spelling} if that is meant."
    )


# -- reading ------------------------------------------------------------------------------------------------


def decoded(raw: bytes | str) -> str:
    """Return the text of a file with normalized line ends.

    Raises:
        UnicodeDecodeError: the bytes are not UTF-8.
    """
    text = raw if isinstance(raw, str) else raw.decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_document(
    raw: bytes | str,
    file: str,
    *,
    code: str = CODE,
    most_bytes: int = MOST_BYTES,
    most_values: int = MOST_VALUES,
    was_yaml_1_1: bool = False,
    keys_as_written: bool = False,
) -> Document:
    """Read the bytes or the text of a file, called `file` in messages.

    `problems` of the result lists all YAML problems, under `code`. With `was_yaml_1_1`, scalars that YAML 1.1
    read differently are warnings. With `keys_as_written` a number may be a key; the key is its spelling.
    """
    reader = _Reader(file, code, most_bytes, most_values, was_yaml_1_1, keys_as_written)
    try:
        root = reader.read(raw)
    except _GiveUp:
        root = None
    if root is None:
        return Document(
            None, MappingProxyType({"": Place(file, 1)}), MappingProxyType({}), tuple(reader.problems)
        )
    places: dict[str, Place] = {}
    keys: dict[str, Place] = {}
    value = reader.expanded(root, "", places, keys)
    return Document(value, MappingProxyType(places), MappingProxyType(keys), tuple(reader.problems))


def read_value(text: str, file: str) -> Any:
    """Return the value of a YAML text that is data, such as a table or an input.

    Raises:
        ConfigurationError: The text is not valid YAML, or passes a limit.
    """
    document = read_document(
        text, file, code="", most_values=DATA_VALUES, was_yaml_1_1=True, keys_as_written=True
    )
    document.log_warnings()
    if document.errors:
        more = f" ({len(document.errors) - 1} more)" if len(document.errors) > 1 else ""
        raise ConfigurationError(f"{document.errors[0]}{more}")
    return document.value


class _GiveUp(Exception):
    """Reading cannot continue."""


class _Node:
    """One node of the document; an alias is the node it refers to."""

    __slots__ = ("height", "items", "key", "kind", "open", "place", "seen", "size", "value")

    def __init__(self, kind: str, place: Place, value: Any = None) -> None:
        self.kind = kind
        self.place = place
        self.value = value
        self.size = 1
        """Number of nodes in it, itself included, aliases expanded."""
        self.height = 1
        self.open = kind != "scalar"
        self.items: list[tuple[str | None, Place | None, _Node, Place]] = []
        """In a mapping: key, its place, value and the value's place; in a list only the last two."""
        self.key: tuple[str | None, Place] | None = None
        """In a mapping: the key whose value comes next; its text is None if the key cannot be used."""
        self.seen: dict[str, Place] = {}


# Line ends in Unicode but not in YAML 1.2: an editor may show one line where a parser sees two.
_LINE_ENDS = "\x85\u2028\u2029"
_NOT_ALLOWED = re.compile(f"[^\t\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[{_LINE_ENDS}]")


class _Reader:
    def __init__(
        self,
        file: str,
        code: str,
        most_bytes: int,
        most_values: int,
        was_yaml_1_1: bool,
        keys_as_written: bool,
    ) -> None:
        self.file = file
        self.code = code
        self.most_bytes = most_bytes
        self.most_values = most_values
        self.was_yaml_1_1 = was_yaml_1_1
        self.keys_as_written = keys_as_written
        self.problems: list[Problem] = []
        self.lines: list[str] = []
        self.total = 0

    def wrong(self, place: Place, message: str) -> None:
        self.problems.append(Problem(self.code, message, Place(*place)))

    def give_up(self, place: Place, message: str) -> _GiveUp:
        self.wrong(place, message)
        return _GiveUp()

    # -- bytes to text --------------------------------------------------------------------------------------

    def text(self, raw: bytes | str) -> str:
        """The file's text with normalized line ends."""
        start = Place(self.file, 1)
        if len(raw) > self.most_bytes:
            raise self.give_up(
                start, f"The file is too large: it may have {self.most_bytes:,} bytes at most."
            )
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise self.give_up(start, "The file is UTF-16. Save it as UTF-8.")
        try:
            text = decoded(raw)
        except UnicodeDecodeError as error:
            raw = error.object
            before = raw[: error.start]
            column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
            place = Place(self.file, before.count(b"\n") + 1, column)
            message = f"The file is not UTF-8 text (byte {error.start}). Save it as UTF-8."
            raise self.give_up(place, message) from None
        forbidden = _NOT_ALLOWED.search(text)
        if forbidden is not None:
            at = forbidden.start()
            place = Place(self.file, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
            raise self.give_up(
                place,
                f"The character U+{ord(forbidden[0]):04X} is not allowed in a file. In double quotes it "
                f'can be written as "\\u{ord(forbidden[0]):04x}".',
            )
        return text

    # -- text to nodes --------------------------------------------------------------------------------------

    def read(self, raw: bytes | str) -> _Node | None:
        """The only document of the file; None if the file is empty."""
        text = self.text(raw)
        self.lines = text.split("\n")
        root: _Node | None = None
        stack: list[_Node] = []
        anchors: dict[str, _Node] = {}
        documents = 0
        for event in self.events(text):
            name = type(event).__name__
            if name == "DocumentStartEvent":
                documents += 1
                if documents > 1:
                    place = self.at(event.start_mark)
                    raise self.give_up(
                        place, "A file holds one document, but another begins here. Move it to its own file."
                    )
                continue
            if name in ("SequenceEndEvent", "MappingEndEvent"):
                self.close(stack)
                continue
            if name == "AliasEvent":
                node, place = self.alias(event, anchors, len(stack))
            elif name in ("ScalarEvent", "SequenceStartEvent", "MappingStartEvent"):
                node = self.node(event, name)
                place = node.place
                if event.anchor is not None:
                    anchors[event.anchor] = node
            else:
                continue
            if stack:
                self.put(stack[-1], node, place, plain=name == "ScalarEvent" and not event.style)
            else:
                root = node
                self.count(1, place)
            if node.open and name != "AliasEvent":
                if len(stack) >= DEEPEST:
                    raise self.too_deep(place)
                stack.append(node)
        return root

    def events(self, text: str) -> Iterator[Any]:
        """The events of a text, yielded while it is parsed."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            yield from yaml.parse(text, Loader=loader)
        except yaml.YAMLError as error:
            mark, message = yaml_trouble(error, text)
            place = Place(self.file, 1) if mark is None else self.at(mark)
            raise self.give_up(place, f"This is not valid YAML: {message}.") from None

    def at(self, mark: Any) -> Place:
        """The place of a mark; a mark after the last line is moved to its end."""
        line = min(mark.line, max(len(self.lines) - 1, 0))
        column = mark.column if line == mark.line else len(self.lines[line])
        return Place(self.file, line + 1, column + 1)

    def count(self, nodes: int, place: Place) -> None:
        self.total += nodes
        if self.total > self.most_values:
            raise self.give_up(
                place,
                f"The file holds more than {self.most_values} values, aliases written out. Split it into "
                f"several files; in a workflow, use a loop or subworkflows.",
            )

    def too_deep(self, place: Place) -> _GiveUp:
        return self.give_up(place, f"Mappings and lists may be nested {DEEPEST} levels deep at most.")

    def alias(self, event: Any, anchors: Mapping[str, _Node], depth: int) -> tuple[_Node, Place]:
        """The node of an alias; its size is known without expanding it."""
        place = self.at(event.start_mark)
        node = anchors.get(event.anchor)
        if node is None:
            raise self.give_up(place, f"There is no anchor '&{event.anchor}' above this alias.")
        if node.open:
            raise self.give_up(place, f"'*{event.anchor}' refers to a value that contains this alias.")
        if depth + node.height > DEEPEST + 1:
            raise self.too_deep(place)
        return node, place

    def node(self, event: Any, name: str) -> _Node:
        place = self.at(event.start_mark)
        if event.tag is not None:
            self.wrong(
                place,
                f"The tag '{_short_tag(event.tag)}' is refused: a value is what it looks like. Texts that "
                f"look like numbers belong in quotes.",
            )
        if name != "ScalarEvent":
            return _Node("list" if name == "SequenceStartEvent" else "mapping", place)
        text = event.value
        style = event.style or ""
        written = Written(*place)
        written.style, written.lines, written.text = style, self.lines, text
        written.end = (event.end_mark.line, event.end_mark.column)
        written.anchored = event.anchor is not None
        value = text
        if _SURROGATE.search(text):
            self.wrong(place, "The text holds half a character (U+D800 to U+DFFF). Write it as \\U0001….")
            value = _SURROGATE.sub("\ufffd", text)
        if not style and event.tag is None:
            try:
                value = core(text)
            except Unusable as unusable:
                self.wrong(place, f"'{text[:40]}' cannot be used: {unusable}")
                value = None
            else:
                before = _read_as_1_1(text) if self.was_yaml_1_1 else None
                if before is not None and before != repr(value):
                    self.problems.append(Problem(CHANGED, _changed(text, before, value), Place(*place)))
        return _Node("scalar", written, value)

    # -- putting nodes together -----------------------------------------------------------------------------

    def put(self, into: _Node, node: _Node, place: Place, plain: bool) -> None:
        """Add a node to its container, as item, key or value."""
        if into.kind == "list":
            self.count(node.size if not node.open else 1, place)
            into.items.append((None, None, node, place))
        elif into.key is None:
            into.key = (self.key(into, node, place, plain), place)
            if node.kind == "scalar":
                return
            self.count(node.size if not node.open else 1, place)
        else:
            self.count(node.size if not node.open else 1, place)
            key, key_place = into.key
            into.key = None
            if key is not None:
                into.items.append((key, key_place, node, place))
        if not node.open:
            into.size += node.size
            into.height = max(into.height, node.height + 1)

    def key(self, into: _Node, node: _Node, place: Place, plain: bool) -> str | None:
        """A key's text; None if it cannot be used."""
        if node.kind != "scalar":
            hint = f" {BRACES}." if node.kind == "mapping" else ""
            self.wrong(place, f"A key must be text; this is a {node.kind}.{hint}")
            return None
        key = node.value
        if self.keys_as_written and isinstance(node.place, Written):
            key = node.place.text
        if not isinstance(key, str):
            spelling = "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
            self.wrong(place, f"The key {spelling} is not text. Put it in quotes.")
            return None
        if key == "<<" and plain:
            self.wrong(place, "YAML 1.2 has no merge key '<<'. Write the keys out, or use an alias as value.")
            return None
        if key in into.seen:
            first = into.seen[key]
            self.wrong(
                place, f"The key '{_cut(key)}' is defined twice here; the first is on line {first.line}."
            )
            return None
        into.seen[key] = place
        return key

    def close(self, stack: list[_Node]) -> None:
        node = stack.pop()
        node.open = False
        if stack:
            stack[-1].size += node.size
            stack[-1].height = max(stack[-1].height, node.height + 1)

    # -- nodes to values ------------------------------------------------------------------------------------

    def expanded(self, node: _Node, path: str, places: dict[str, Place], keys: dict[str, Place]) -> Any:
        """The plain value of a node, aliases expanded; the limits were checked while reading."""
        places.setdefault(path, node.place)
        if node.kind == "scalar":
            return node.value
        if node.kind == "list":
            items: list[Any] = []
            for index, (_, _, item, place) in enumerate(node.items):
                item_path = below(path, index)
                if item.kind != "scalar":
                    places[item_path] = place
                items.append(self.expanded(item, item_path, places, keys))
            return items
        mapping: dict[str, Any] = {}
        for key, key_place, item, place in node.items:
            item_path = below(path, key or "")
            if item.kind != "scalar":
                places[item_path] = place
            if key_place is not None:
                keys[item_path] = key_place
            mapping[key or ""] = self.expanded(item, item_path, places, keys)
        return mapping


def _short_tag(tag: str) -> str:
    return _cut(tag.replace("tag:yaml.org,2002:", "!!"))


def _cut(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
