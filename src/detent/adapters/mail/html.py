"""HTML of a mail as the text a reader sees: hidden elements left out, quoted ones marked with `> `.

It has a scanner of its own, because `html.parser` takes minutes over a quarter of a megabyte of unclosed
tags and its behaviour changes between patch releases. Here every character is looked at a fixed number of
times, whatever the input, and nothing recurses. How elements open and close follows the HTML standard as far
as it bears on what is seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import NamedTuple

from detent.adapters.mail.text import LONGEST_TEXT, cleaned

LONGEST_SOURCE = 5_000_000
"""Characters of HTML that are looked at."""

DEEPEST_QUOTE = 50
"""Quotes within quotes beyond this are marked like this."""


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_CELLS = _words("td th")
_TABLE_PARTS = _words("td th tr tbody thead tfoot table caption")
_SPACED = _words("p h1 h2 h3 h4 h5 h6 ul ol dl blockquote pre table")
"""Blocks that stand apart from what is before and after them."""
_BLOCKS = _SPACED | _words(
    "address article aside body center dd details dialog dir div dt fieldset figcaption figure footer form",
    "header hgroup html legend li main menu nav section summary tr tbody thead tfoot caption td th",
)
_VOID = _words(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
)
_RAW = _words("script style title textarea iframe noembed noframes xmp")
"""Elements whose content is no markup."""
_UNSEEN = _words("xml template datalist object audio video svg math applet")
_TURNING = _UNSEEN | _words("pre xmp textarea ol ul blockquote")
"""Elements in which something else holds than around them, even without attributes."""
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
"""Which elements a new one closes, and inside which they must be."""

_TAG = re.compile(r"""<([a-zA-Z][^\s/>\x00]*+)((?:[^>"']++|"[^"]*+"|'[^']*+')*+)>""")
_CARELESS_TAG = re.compile(r"<([a-zA-Z][^\s/>\x00]*+)([^>]*+)>")
_END_TAG = re.compile(r"</([a-zA-Z][^\s/>\x00]*+)[^>]*+>")
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]++))?""")
_RAW_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW}
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")

_TELLING = ("style", "class", "id", "hidden", "start")
"""Attributes that matter here."""

_QUOTES = _words(
    "gmail_quote gmail_quote_container yahoo_quoted protonmail_quote tutanota_quote zmail_extra",
    "moz-cite-prefix moz-forward-container reply-intro mail-editor-reference-message-container",
)
"""Classes and ids of what mail programs put around the older mail, or around the line that introduces it."""
_OPENERS = frozenset({"divrplyfwdmsg", "outlookmessageheader"})
"""Those that only open the older mail: all that follows them belongs to it."""
_PASSED = re.compile(r"^(?:x_)+")
_NUMBER = re.compile(r"[0-9]{1,6}")
_YAHOO = re.compile(r"yahoo_quoted_\d+")

_ZERO = re.compile(r"[-+]?0*+(?:\.0*+)?(?:px|pt|em|rem|ex|%|in|cm|mm|pc|vh|vw)?")
_FAR_OFF = re.compile(r"-\d{3,}(?:\.\d+)?(?:px|pt|em|rem|%)?")
_SPECK = re.compile(r"(?:[01]?\.\d+|1)(?:px|pt)")


class _Inside(NamedTuple):
    """What holds inside an open element."""

    gone: bool = False
    """Nothing is shown."""
    unseen: bool = False
    """Not shown unless an element further in says otherwise (`visibility`)."""
    tiny: bool = False
    """Too small to see unless an element further in says otherwise (`font-size`)."""
    quote: int = 0
    keeps_space: bool = False
    counter: list[int] | None = None
    """Number of the last item, in an ordered list."""
    dark: bool = False
    """One of the first three."""


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
        """Of the open elements, innermost last."""
        self._insides: list[_Inside] = [_Inside()]
        """What holds in each of them."""
        self._places: dict[str, list[int]] = {}
        """Where the open elements of a name stand, innermost last."""
        self._blocks: list[int] = []
        """Where open blocks stand; an inline element's end does not reach beyond the last."""
        self._fences: list[int] = []
        """Where open cells and tables stand; only ends of table parts reach beyond the last."""
        self._rows: list[int] = []
        """For each open row, how much had been written when it began."""
        self._rest = 0
        """Quote depth of everything from here on."""
        self._made_for_quote = 0
        """Where the open block stands that a mail program made for a quote; 0 when there is none."""

    def text(self) -> str:
        return self._page.text()

    # -- scanning -------------------------------------------------------------------------------------------

    def read(self, source: str) -> bool:
        """Write down all of it; False when the page was full before the end."""
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
                    # A quotation mark is never closed. From here on tags simply end at the next `>`: one such
                    # search to the end is affordable, one for each tag is not.
                    tag = _CARELESS_TAG
                    match = tag.match(source, opening)
                if match is None:
                    break  # no `>` any more: the rest is one broken tag
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
                # `<!-->` is a whole comment, too.
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
        place = len(self._names)
        self._names.append(name)
        self._insides.append(inside)
        self._places.setdefault(name, []).append(place)
        if block:
            self._blocks.append(place)
            if name in _FENCES:
                self._fences.append(place)
            if not inside.dark:
                self._begin(name, around)

    def _begin(self, name: str, around: _Inside) -> None:
        """What the page shows of a block's beginning."""
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
        told = _attributes(attributes) if attributes and not around.gone else {}
        gone = around.gone or name in _UNSEEN or "hidden" in told
        _, unseen, tiny, quote, keeps_space, counter, _ = around
        keeps_space = keeps_space or name in ("pre", "xmp", "textarea")
        style = told.get("style", "")
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
            start = told.get("start", "")
            counter = [int(start) - 1 if _NUMBER.fullmatch(start) else 0]
        if name == "blockquote" or "class" in told or "id" in told:
            quote = min(self._quote(name, told, quote), DEEPEST_QUOTE)
        return _Inside(gone, unseen, tiny, quote, keeps_space, counter, gone or unseen or tiny)

    def _quote(self, name: str, told: Mapping[str, str], around: int) -> int:
        """The quote depth inside an element, by what mail programs call their quotes."""
        names = (told.get("class", "") + " " + told.get("id", "")).lower().split()
        # Outlook puts `x_` before every name each time a mail passes through it.
        own = {_PASSED.sub("", one) for one in names}
        if own & _OPENERS:
            self._rest = 1
        if name == "blockquote":
            # The quote inside the block a mail program made for it is the same quote.
            return around + (not self._fresh_block())
        if not around and (own & _QUOTES or any(_YAHOO.fullmatch(one) for one in own)):
            self._made_for_quote = len(self._names)
            return 1
        return around

    def _fresh_block(self) -> bool:
        """We are inside a block a mail program made for a quote, and not in a quote within it."""
        return self._made_for_quote > 0 and not any(
            place > self._made_for_quote for place in self._places.get("blockquote", ())[-1:]
        )

    def _close_implied(self, name: str) -> None:
        """Close what a new block closes without saying so."""
        if name in _IMPLIED:
            self._close_within(*_IMPLIED[name])
        paragraphs = self._places.get("p")
        if paragraphs and (not self._fences or paragraphs[-1] > self._fences[-1]):
            self._close_to(paragraphs[-1])

    def _close_within(self, names: tuple[str, ...], bounds: tuple[str, ...]) -> None:
        """Close the innermost open element of these names, if it is inside the innermost of `bounds`."""
        place = self._innermost(names)
        if place > self._innermost(bounds):
            self._close_to(place)

    def _innermost(self, names: tuple[str, ...]) -> int:
        found = 0
        for name in names:
            places = self._places.get(name)
            if places and places[-1] > found:
                found = places[-1]
        return found

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
        place = places[-1]
        if name in _TABLE_PARTS:
            tables = self._places.get("table")
            if name != "table" and tables and place < tables[-1]:
                return
        elif name in _BLOCKS:
            if self._fences and place < self._fences[-1]:
                return
        elif self._blocks and place < self._blocks[-1]:
            return
        self._close_to(place)

    def _close_to(self, place: int) -> None:
        """Close an open element and everything in it."""
        while len(self._names) > place:
            name, inside = self._names.pop(), self._insides.pop()
            here = len(self._names)
            self._places[name].pop()
            if here == self._made_for_quote:
                self._made_for_quote = 0
            elif name == "blockquote" and self._fresh_block():
                # What follows the quote in its block is an answer written between the lines.
                block = self._made_for_quote
                self._insides[block] = self._insides[block]._replace(quote=0)
                self._made_for_quote = 0
            if self._blocks and self._blocks[-1] == here:
                self._blocks.pop()
                if self._fences and self._fences[-1] == here:
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
    """The place behind the next `end`; the end of everything when there is none."""
    found = source.find(end, start)
    return len(source) if found < 0 else found + len(end)


# -- attributes ---------------------------------------------------------------------------------------------


def _attributes(source: str) -> dict[str, str]:
    """The attributes that matter; of several with one name the first."""
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(source):
        name = match[1].lower()
        if name in _TELLING and name not in found:
            value = match[2] or ""
            if value[:1] in ("'", '"'):
                value = value.strip(value[0])
            found[name] = unescape(value) if "&" in value else value
    return found


def _styles(style: str) -> dict[str, str]:
    """Properties and values of a style attribute; the last one said holds."""
    found = {}
    for declaration in re.sub(r"/\*.*?(?:\*/|\Z)", " ", style, flags=re.DOTALL).split(";"):
        name, colon, value = declaration.partition(":")
        if colon:
            found[name.strip().lower()] = value.lower().replace("!important", "").strip()
    return found


def _is_gone(styles: Mapping[str, str]) -> bool:
    """Nothing in an element of this style can be seen, whatever the elements inside it say."""
    said = styles.get
    if said("display") == "none" or said("mso-hide") == "all" or said("content-visibility") == "hidden":
        return True
    if _ZERO.fullmatch(said("opacity", "1")):
        return True
    if said("color") == "transparent":
        return True
    hides_overflow = any(
        said(name, "").startswith(("hidden", "clip")) for name in ("overflow", "overflow-x", "overflow-y")
    )
    if hides_overflow and any(
        _ZERO.fullmatch(said(name, "1")) for name in ("height", "width", "max-height", "max-width")
    ):
        return True
    if said("position") in ("absolute", "fixed") and any(
        _FAR_OFF.fullmatch(said(name, "")) for name in ("left", "top", "right", "bottom")
    ):
        return True
    return _FAR_OFF.fullmatch(said("text-indent", "")) is not None


# -- the page -----------------------------------------------------------------------------------------------

_NOTHING, _SEPARATOR, _LINE, _PARAGRAPH = range(4)


class _Page:
    """Lines as they are written, with what is to come before the next word."""

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
        """Of a list item, before its first word."""
        self._cell = False
        """In a cell where nothing is written yet: a block there does not begin a line of its own."""
        self.written = 0
        """Pieces of text so far."""

    @property
    def full(self) -> bool:
        return self._size > self._limit

    def text(self) -> str:
        self._flush()
        return "\n".join(self._lines).strip("\n")

    def break_(self, strength: int) -> None:
        """What follows stands on a line of its own, or apart as a paragraph."""
        if not self._cell:
            self._pending = max(self._pending, strength)
            self._space = False

    def end_line(self) -> None:
        """`<br>`: the second one in a row leaves a line empty."""
        if not self._cell:
            self._pending = _PARAGRAPH if self._pending >= _LINE else _LINE
            self._space = False

    def cell(self, *, joined: bool) -> None:
        """A cell begins; `joined` when something stands before it in its row."""
        if joined:
            self._pending = _SEPARATOR
        self._cell = True
        self._space = False

    def end_cell(self) -> None:
        """A cell ends; a paragraph in it does not stand apart from what follows the cell."""
        self._cell = False
        self._pending = min(self._pending, _LINE)

    def item(self, mark: str) -> None:
        if not self._cell:
            self._pending = max(self._pending, _LINE)
        self._mark = mark

    def end_item(self) -> None:
        """An item ends; where nothing was in it, its mark is not shown."""
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
        """Do what is pending, so that text can follow."""
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
