"""HTML of a mail as the text a reader sees: hidden elements left out, quoted ones marked with `> `.

It has its own scanner, because `html.parser` takes minutes over a quarter of a megabyte of unclosed tags and
its behaviour changes between patch releases. Here every character is looked at a fixed number of times,
whatever the input, and nothing recurses. Elements open and close as in the HTML standard, as far as it
matters for what is visible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import NamedTuple

from detent.adapters.mail.text import LONGEST_TEXT, cleaned

LONGEST_SOURCE = 5_000_000
"""Characters of HTML that are read."""

DEEPEST_QUOTE = 50
"""The deepest quote mark; deeper quotes get the same mark."""


def _name_set(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_CELLS = _name_set("td th")
_TABLE_PARTS = _name_set("td th tr tbody thead tfoot table caption")
_SPACED = _name_set("p h1 h2 h3 h4 h5 h6 ul ol dl blockquote pre table")
"""Blocks separated from what is before and after them by an empty line."""
_BLOCKS = _SPACED | _name_set(
    "address article aside body center dd details dialog dir div dt fieldset figcaption figure footer form",
    "header hgroup html legend li main menu nav section summary tr tbody thead tfoot caption td th",
)
_VOID = _name_set(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
)
_RAW = _name_set("script style title textarea iframe noembed noframes xmp")
"""Elements whose content is no markup."""
_UNSEEN = _name_set("xml template datalist object audio video svg math applet")
_TURNING = _UNSEEN | _name_set("pre xmp textarea ol ul blockquote")
"""Elements that change how their content is shown, even without attributes."""
_FENCES = _CELLS | {"table"}
_GROUPS = ("tbody", "thead", "tfoot")
_IMPLIED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "td": (("td", "th"), ("table",)),
    "th": (("td", "th"), ("table",)),
    "tr": (("tr",), ("table",)),
    **dict.fromkeys(_GROUPS, (_GROUPS, ("table",))),
    "li": (("li",), ("ul", "ol")),
    "dt": (("dt", "dd"), ("dl",)),
    "dd": (("dt", "dd"), ("dl",)),
}
"""Which elements a new one closes, and which element they must be inside of."""

_TAG = re.compile(r"""<([a-zA-Z][^\s/>\x00]*+)((?:[^>"']++|"[^"]*+"|'[^']*+')*+)>""")
_CARELESS_TAG = re.compile(r"<([a-zA-Z][^\s/>\x00]*+)([^>]*+)>")
_END_TAG = re.compile(r"</([a-zA-Z][^\s/>\x00]*+)[^>]*+>")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]++))?""")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")

_TELLING = ("style", "class", "id", "hidden", "start")
"""Attributes that affect the text."""

_QUOTES = _name_set(
    "gmail_quote gmail_quote_container yahoo_quoted protonmail_quote tutanota_quote zmail_extra",
    "moz-cite-prefix moz-forward-container reply-intro mail-editor-reference-message-container",
)
"""Classes and ids that mail programs give to the older mail, or to the line that introduces it."""
_OPENERS = frozenset({"divrplyfwdmsg", "outlookmessageheader"})
"""Those that only mark the start of the older mail: everything after them belongs to it."""
_PASSED = re.compile(r"^(?:x_)+")
_NUMBER = re.compile(r"[0-9]{1,6}")
_YAHOO = re.compile(r"yahoo_quoted_\d+")

_ZERO = re.compile(r"[-+]?0*+(?:\.0*+)?(?:px|pt|em|rem|ex|%|in|cm|mm|pc|vh|vw)?")
_FAR_OFF = re.compile(r"-\d{3,}(?:\.\d+)?(?:px|pt|em|rem|%)?")
_SPECK = re.compile(r"(?:[01]?\.\d+|1)(?:px|pt)")


class _Inside(NamedTuple):
    """The state inside an open element."""

    gone: bool = False
    """Nothing is shown."""
    unseen: bool = False
    """Hidden unless an inner element says otherwise (`visibility`)."""
    tiny: bool = False
    """Too small to see unless an inner element says otherwise (`font-size`)."""
    quote: int = 0
    keeps_space: bool = False
    counter: list[int] | None = None
    """Number of the last item of an ordered list."""
    dark: bool = False
    """Any of the first three."""


def text_of(source: str, limit: int = LONGEST_TEXT) -> tuple[str, bool]:
    """The text of an HTML document, and whether it was cut."""
    reader = _Reader(limit)
    overlong = len(source) > LONGEST_SOURCE
    finished = reader.read(source[:LONGEST_SOURCE] if overlong else source)
    return reader.text(), overlong or not finished


class _Reader:
    def __init__(self, limit: int) -> None:
        self._page = _Page(limit)
        self._names: list[str] = [""]
        """Names of the open elements, innermost last."""
        self._insides: list[_Inside] = [_Inside()]
        """The state in each of them."""
        self._places: dict[str, list[int]] = {}
        """Positions of the open elements by name, innermost last."""
        self._blocks: list[int] = []
        """Positions of the open blocks; the end tag of an inline element reaches no further than the last."""
        self._fences: list[int] = []
        """Positions of the open cells and tables; only end tags of table parts reach beyond the last."""
        self._rows: list[int] = []
        """For each open row, how much had been written when it began."""
        self._rest = 0
        """Quote depth of everything from here on."""
        self._made_for_quote = 0
        """Position of the open block that a mail program made for a quote; 0 when there is none."""

    def text(self) -> str:
        return self._page.text()

    # -- scanning -------------------------------------------------------------------------------------------

    def read(self, source: str) -> bool:
        """Write all of it to the page; False when the page was full before the end."""
        at, end = 0, len(source)
        tag = _TAG
        while at < end and not self._page.full:
            opening = source.find("<", at)
            if opening < 0:
                self._text(source[at:])
                break
            if opening > at:
                self._text(source[at:opening])
            following = source[opening + 1 : opening + 2]
            if following.isascii() and following.isalpha():
                match = tag.match(source, opening)
                if match is None and tag is _TAG:
                    # A quotation mark is never closed. From here on tags simply end at the next `>`: one
                    # search to the end is affordable, one for each tag is not.
                    tag = _CARELESS_TAG
                    match = tag.match(source, opening)
                if match is None:
                    break  # no `>` left: the rest is a broken tag
                at = match.end()
                name = match[1].lower()
                self._start(name, match[2])
                if name in _RAW:
                    closing = _RAW_ENDS[name].search(source, at)
                    if closing is None:
                        break
                    if name in ("textarea", "xmp"):
                        self._text(source[at : closing.start()])
                    at = closing.start()
            elif following == "/":
                match = _END_TAG.match(source, opening)
                if match is not None:
                    at = match.end()
                    self._end(match[1].lower())
                elif source[opening + 2 : opening + 3].isalpha():
                    break
                else:
                    at = _after(source, ">", opening)
            elif source.startswith("<!--", opening):
                # `<!-->` is a complete comment, too.
                at = _after(source, "-->", opening + 2)
            elif following in ("!", "?"):
                at = _after(source, ">", opening)
            else:
                self._text("<")
                at = opening + 1
        return not self._page.full

    def _text(self, raw: str) -> None:
        inside = self._insides[-1]
        if inside.dark:
            return
        if "&" in raw:
            raw = unescape(raw)
        self._page.write(raw, inside.quote + self._rest, keeps_space=inside.keeps_space)

    # -- elements -------------------------------------------------------------------------------------------

    def _start(self, name: str, attributes: str) -> None:
        if name == "br":
            self._line_end()
            return
        if name in _VOID or (":" in name and attributes.endswith("/")):
            if name == "hr":
                self._break(_LINE)
            return
        block = name in _BLOCKS
        if block:
            self._close_implied(name)
        around = self._insides[-1]
        inside = around
        if attributes or name in _TURNING:
            inside = self._inside(name, attributes, around)
        position = len(self._names)
        self._names.append(name)
        self._insides.append(inside)
        self._places.setdefault(name, []).append(position)
        if block:
            self._blocks.append(position)
            if name in _FENCES:
                self._fences.append(position)
            if not inside.dark:
                self._begin(name, around)

    def _begin(self, name: str, around: _Inside) -> None:
        """Write what the page shows at the beginning of a block."""
        if name in _CELLS:
            self._page.cell(joined=bool(self._rows) and self._page.written > self._rows[-1])
            return
        self._break(_PARAGRAPH if name in _SPACED else _LINE)
        if name == "tr":
            self._rows.append(self._page.written)
        elif name == "li":
            if around.counter is not None:
                around.counter[0] += 1
                self._page.item(f"{around.counter[0]}. ")
            else:
                self._page.item("- ")

    def _break(self, strength: int) -> None:
        if not self._insides[-1].dark:
            self._page.break_(strength)

    def _line_end(self) -> None:
        if not self._insides[-1].dark:
            self._page.end_line()

    def _inside(self, name: str, attributes: str, around: _Inside) -> _Inside:
        relevant = _attributes(attributes) if attributes and not around.gone else {}
        gone = around.gone or name in _UNSEEN or "hidden" in relevant
        _, unseen, tiny, quote, keeps_space, counter, _ = around
        keeps_space = keeps_space or name in ("pre", "xmp", "textarea")
        style = relevant.get("style", "")
        if style:
            styles = _styles(style)
            gone = gone or _is_gone(styles)
            if "visibility" in styles:
                unseen = styles["visibility"] in ("hidden", "collapse")
            if "font-size" in styles:
                size = styles["font-size"]
                tiny = _ZERO.fullmatch(size) is not None or _SPECK.fullmatch(size) is not None
            if styles.get("white-space", "").startswith("pre"):
                keeps_space = styles["white-space"] != "pre-line"
        if name == "ul":
            counter = None
        elif name == "ol":
            start = relevant.get("start", "")
            counter = [int(start) - 1 if _NUMBER.fullmatch(start) else 0]
        if name == "blockquote" or "class" in relevant or "id" in relevant:
            quote = min(self._quote(name, relevant, quote), DEEPEST_QUOTE)
        return _Inside(gone, unseen, tiny, quote, keeps_space, counter, gone or unseen or tiny)

    def _quote(self, name: str, attributes: Mapping[str, str], around: int) -> int:
        """The quote depth inside an element, by the names mail programs give to their quotes."""
        names = (attributes.get("class", "") + " " + attributes.get("id", "")).lower().split()
        # Outlook adds `x_` to every name each time a mail passes through it.
        bare_names = {_PASSED.sub("", label) for label in names}
        if bare_names & _OPENERS:
            self._rest = 1
        if name == "blockquote":
            # The quote inside the block a mail program made for it is the same quote.
            return around + (not self._fresh_block())
        if not around and (bare_names & _QUOTES or any(_YAHOO.fullmatch(label) for label in bare_names)):
            self._made_for_quote = len(self._names)
            return 1
        return around

    def _fresh_block(self) -> bool:
        """Whether we are inside a block a mail program made for a quote, but not in a quote within it."""
        return self._made_for_quote > 0 and not any(
            place > self._made_for_quote for place in self._places.get("blockquote", ())[-1:]
        )

    def _close_implied(self, name: str) -> None:
        """Close the elements that a new block closes implicitly."""
        if name in _IMPLIED:
            self._close_within(*_IMPLIED[name])
        paragraphs = self._places.get("p")
        if paragraphs and (not self._fences or paragraphs[-1] > self._fences[-1]):
            self._close_to(paragraphs[-1])

    def _close_within(self, names: tuple[str, ...], bounds: tuple[str, ...]) -> None:
        """Close the innermost open element of these names, if it is inside the innermost of `bounds`."""
        position = self._innermost(names)
        if position > self._innermost(bounds):
            self._close_to(position)

    def _innermost(self, names: tuple[str, ...]) -> int:
        position = 0
        for name in names:
            places = self._places.get(name)
            if places and places[-1] > position:
                position = places[-1]
        return position

    def _end(self, name: str) -> None:
        if name == "br":
            self._line_end()
            return
        if name == "p" and not self._places.get("p"):
            self._break(_PARAGRAPH)
            return
        places = self._places.get(name)
        if not places:
            return
        position = places[-1]
        if name in _TABLE_PARTS:
            tables = self._places.get("table")
            if name != "table" and tables and position < tables[-1]:
                return
        elif name in _BLOCKS:
            if self._fences and position < self._fences[-1]:
                return
        elif self._blocks and position < self._blocks[-1]:
            return
        self._close_to(position)

    def _close_to(self, position: int) -> None:
        """Close an open element and everything in it."""
        while len(self._names) > position:
            name, inside = self._names.pop(), self._insides.pop()
            closed = len(self._names)
            self._places[name].pop()
            if closed == self._made_for_quote:
                self._made_for_quote = 0
            elif name == "blockquote" and self._fresh_block():
                # What follows the quote in its block is a reply written between the lines.
                block = self._made_for_quote
                self._insides[block] = self._insides[block]._replace(quote=0)
                self._made_for_quote = 0
            if self._blocks and self._blocks[-1] == closed:
                self._blocks.pop()
                if self._fences and self._fences[-1] == closed:
                    self._fences.pop()
                if not inside.dark:
                    self._finish(name)

    def _finish(self, name: str) -> None:
        if name in _CELLS:
            self._page.end_cell()
            return
        if name == "tr" and self._rows:
            self._rows.pop()
        elif name == "li":
            self._page.end_item()
        self._page.break_(_PARAGRAPH if name in _SPACED else _LINE)


def _after(source: str, end: str, start: int) -> int:
    """The position after the next `end`; the end of the source when there is none."""
    position = source.find(end, start)
    return len(source) if position < 0 else position + len(end)


# -- attributes ---------------------------------------------------------------------------------------------


def _attributes(source: str) -> dict[str, str]:
    """The attributes that affect the text; the first of several with the same name."""
    attributes: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(source):
        name = match[1].lower()
        if name in _TELLING and name not in attributes:
            value = match[2] or ""
            if value[:1] in ("'", '"'):
                value = value.strip(value[0])
            attributes[name] = unescape(value) if "&" in value else value
    return attributes


def _styles(style: str) -> dict[str, str]:
    """Properties and values of a style attribute; the last of several counts."""
    properties = {}
    for declaration in re.sub(r"/\*.*?(?:\*/|\Z)", " ", style, flags=re.DOTALL).split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            properties[name.strip().lower()] = value.lower().replace("!important", "").strip()
    return properties


def _is_gone(styles: Mapping[str, str]) -> bool:
    """Whether this style hides the element and everything in it."""
    style = styles.get
    if style("display") == "none" or style("mso-hide") == "all" or style("content-visibility") == "hidden":
        return True
    if _ZERO.fullmatch(style("opacity", "1")):
        return True
    if style("color") == "transparent":
        return True
    hides_overflow = any(
        style(name, "").startswith(("hidden", "clip")) for name in ("overflow", "overflow-x", "overflow-y")
    )
    if hides_overflow and any(
        _ZERO.fullmatch(style(name, "1")) for name in ("height", "width", "max-height", "max-width")
    ):
        return True
    if style("position") in ("absolute", "fixed") and any(
        _FAR_OFF.fullmatch(style(name, "")) for name in ("left", "top", "right", "bottom")
    ):
        return True
    return _FAR_OFF.fullmatch(style("text-indent", "")) is not None


# -- the page -----------------------------------------------------------------------------------------------

_NOTHING, _SEPARATOR, _LINE, _PARAGRAPH = range(4)


class _Page:
    """The lines written so far, and the break that comes before the next word."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._lines: list[str] = []
        self._line: list[str] = []
        self._quote = 0
        """Depth of the line being written."""
        self._pending = _NOTHING
        self._space = False
        self._mark = ""
        """The mark of a list item, until its first word."""
        self._cell = False
        """At the start of a cell, where a block does not begin a new line."""
        self.written = 0
        """Number of pieces of text so far."""

    @property
    def full(self) -> bool:
        return self._size > self._limit

    def text(self) -> str:
        self._flush()
        return "\n".join(self._lines).strip("\n")

    def break_(self, strength: int) -> None:
        """Start a new line, or a new paragraph, before the next text."""
        if not self._cell:
            self._pending = max(self._pending, strength)
            self._space = False

    def end_line(self) -> None:
        """`<br>`: the second one in a row leaves a line empty."""
        if not self._cell:
            self._pending = _PARAGRAPH if self._pending >= _LINE else _LINE
            self._space = False

    def cell(self, *, joined: bool) -> None:
        """Begin a cell; `joined` when its row has text before it."""
        if joined:
            self._pending = _SEPARATOR
        self._cell = True
        self._space = False

    def end_cell(self) -> None:
        """End a cell; a paragraph in it is not set apart from what follows the cell."""
        self._cell = False
        self._pending = min(self._pending, _LINE)

    def item(self, mark: str) -> None:
        if not self._cell:
            self._pending = max(self._pending, _LINE)
        self._mark = mark

    def end_item(self) -> None:
        """End an item; an empty one shows no mark."""
        self._mark = ""

    def write(self, text: str, quote: int, *, keeps_space: bool) -> None:
        if keeps_space:
            self._write_lines(text, quote)
            return
        words = _SPACE.sub(" ", text)
        if not words or words == " ":
            self._space = self._space or bool(words)
            return
        self._prepare(quote)
        if words[0] == " ":
            self._space = True
        if self._space and self._line:
            self._line.append(" ")
        self._add(words.strip(" "))
        self._space = words[-1] == " "

    def _write_lines(self, text: str, quote: int) -> None:
        lines = text.replace("\r\n", "\n").split("\n")
        for number, line in enumerate(lines):
            if number:
                self._cell = False
                if self._pending >= _LINE or not self._line:
                    self._pending = _PARAGRAPH
                else:
                    self._pending = _LINE
                self._space = False
            if line.strip():
                self._prepare(quote)
                self._add(line if not self._line else (" " if self._space else "") + line)
                self._space = False

    def _prepare(self, quote: int) -> None:
        """Write the pending break, so that text can follow."""
        if quote != self._quote and (self._line or self._lines):
            self._pending = max(self._pending, _LINE)
        if self._pending == _SEPARATOR:
            if self._line:
                self._line.append(" | ")
            self._space = False
        elif self._pending:
            paragraph = self._pending == _PARAGRAPH
            self._flush()
            if paragraph and self._lines and self._lines[-1]:
                self._lines.append("")
            self._space = False
        self._quote = quote
        self._pending = _NOTHING
        self._cell = False
        if self._mark:
            self._line.append(self._mark)
            self._mark = ""

    def _add(self, text: str) -> None:
        self._line.append(text)
        self._size += len(text) + 1
        self.written += 1

    def _flush(self) -> None:
        if self._line:
            line = cleaned("".join(self._line)).replace("\n", " ").rstrip()
            self._lines.append("> " * self._quote + line)
            self._line = []
