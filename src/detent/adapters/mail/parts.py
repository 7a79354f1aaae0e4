"""The parts of a mail's text: what is new, what is quoted from older mails, what is forwarded.

Every line goes to exactly one part; quote marks are removed, nothing else is lost. Lines that cannot be
assigned stay in the newest part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["newest", "quoted", "forwarded"]

DASHES = "-- "
"""The line that announces a signature."""

DEEPEST = 50
"""Depth from which on older mails are no longer distinguished."""


@dataclass(frozen=True, slots=True, repr=False)
class Part:
    """All lines of one kind and depth, in the order they were found."""

    kind: Kind
    text: str
    depth: int
    """0 for the newest part, 1 for the mail it answers, 2 for the one before that."""

    def __repr__(self) -> str:
        return f"Part({self.kind}, depth {self.depth}, {len(self.text)} characters)"


class _Line(NamedTuple):
    marks: int
    """Number of quote marks before it."""
    text: str


# -- where an older mail begins -----------------------------------------------------------------------------

_MARKS = re.compile(r"(?:[ \t]?>)+")

_FORWARD = re.compile(
    r"[-_=* ]*(?:"
    r"(?:begin )?forwarded message"
    r"|przekazan[ae] wiadomość|wiadomość przekazana|treść przekazanej wiadomości"
    r"|początek przekaz(?:an|ywan)ej wiadomości"
    r"|(?:anfang der )?weitergeleitete[n]? nachricht|(?:début du )?message (?:transféré|réexpédié)"
    r"|mensaje reenviado|messaggio inoltrato"
    r")\s*:?[-_=* ]*"
    r"|-{2,} ?forwarded by\b.*",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"[-_=]{2,} ?(?:"
    r"original message|original appointment|reply message|reply to message"
    r"|wiadomość oryginalna|oryginalna wiadomość|pierwotna wiadomość|wiadomość pierwotna"
    r"|ursprüngliche nachricht|original-nachricht|original-mail"
    r"|message d['’]origine|message original|mensaje original|messaggio originale|původní zpráva"
    r") ?[-_=]{2,}",
    re.IGNORECASE,
)
_DASHED = re.compile(r"[-_=*]{2}|begin |początek |anfang |début |forwarded", re.IGNORECASE)
"""The beginnings of lines that may be one of these; all other lines are skipped."""
_RULE = re.compile(r"[_\-=*]{8,}")

_WEEKDAY = r"(?:pon|wt|śr|sr|czw|pt|sob|niedz|ndz|nd)\b"
_INTRO_BEGINS = re.compile(
    rf"(?:on|at|w dniu|dnia|am|le|el|il|dne)\b|{_WEEKDAY}|wiadomość napisana przez\b|\d{{1,4}}[-./]\d",
    re.IGNORECASE,
)
_VERB = (
    r"(?:wrote|writes|pisze|pisał(?:\(a\)|a)?|napisał(?:\(a\)|a|\(-a\)|/a)?|napisali|schrieb\b.*|a écrit"
    r"|escribió|ha scritto|napsal(?:\(a\)|a)?)"
)
_INTRO = re.compile(
    rf"(?=.{{0,300}}\d)(?:"
    rf"(?:on|at|w dniu|dnia|am|le|el|il|dne|{_WEEKDAY})\b.{{4,300}}?\b{_VERB}\s*:"
    rf"|\d{{1,4}}[-./]\d.{{4,300}}?(?:\b{_VERB}\s*:|<[^<>\s]+@[^<>\s]+>\s*:)"
    rf"|wiadomość napisana przez\b.{{4,300}}?:"
    rf")",
    re.IGNORECASE,
)
INTRO_LINES = 4
"""Lines over which "On … wrote:" may be wrapped."""

_LABEL = r"[*_]{{0,2}}(?:{names})[ \t]*:[*_]{{0,2}}(?=\s|$)"
_SENDER = re.compile(_LABEL.format(names="from|od|von|de|da|nadawca"), re.IGNORECASE)
_WHEN = re.compile(
    _LABEL.format(names="sent|date|wysłano|wysłane|data|gesendet|datum|envoyé|enviado|fecha|inviato"),
    re.IGNORECASE,
)
_OTHERS = re.compile(
    _LABEL.format(
        names="to|cc|bcc|reply-to|subject|importance|attachments|do|dw|adresat|odp\\.? do|temat|ważność"
        "|załączniki|an|betreff|à|objet|para|asunto|a|oggetto|kopia|kopie"
    ),
    re.IGNORECASE,
)
HEADER_LINES = 12
"""Lines that may belong to a block of "From: … Sent: … To: … Subject: …", folded ones included."""


def split(text: str, *, forwarded: bool = False) -> tuple[Part, ...]:
    """The parts of a text, newest first; the first is always the newest part, which may be empty.

    `forwarded` means that the mail as a whole forwards another one (see `says_forwarded`): then the first
    older mail in it is not a quote.
    """
    lines = [_read(line) for line in text.split("\n")]
    lines_by_part: dict[tuple[Kind, int], list[str]] = {("newest", 0): []}
    last: tuple[Kind, int] | None = None
    for key, line in zip(_assigned(lines, forwarded), lines, strict=True):
        collected = lines_by_part.setdefault(key, [])
        if last is not None and last != key and collected and collected[-1]:
            collected.append("")  # separates two passages
        if line.text or (collected and collected[-1]):
            collected.append(line.text)
        last = key
    return tuple(
        Part(kind, "\n".join(collected).strip("\n"), depth)
        for (kind, depth), collected in sorted(lines_by_part.items(), key=lambda item: _rank(*item[0]))
        if kind == "newest" or any(collected)
    )


def says_forwarded(subject: str) -> bool:
    """A subject that begins with "Fwd:", "PD:" or the like."""
    return re.match(r"\s*\[?(?:fwd?|pd|przekaz|wg|tr|rv)\s*:", subject, re.IGNORECASE) is not None


def _rank(kind: Kind, depth: int) -> tuple[int, int]:
    return ("newest", "quoted", "forwarded").index(kind), depth


def _read(line: str) -> _Line:
    match = _MARKS.match(line)
    if match is None:
        return _Line(0, _trimmed(line))
    return _Line(match[0].count(">"), _trimmed(line[match.end() :].removeprefix(" ")))


def _trimmed(line: str) -> str:
    return line if line == DASHES else line.rstrip()


def _assigned(lines: Sequence[_Line], forwarded: bool) -> list[tuple[Kind, int]]:
    """For each line the part it belongs to."""
    keys: list[tuple[Kind, int]] = []
    zones: list[int] = []  # quote marks around each older mail that has no quote marks of its own
    passed_on: int | None = None  # quote marks around a forwarded mail
    before = 0  # quote marks of the last line with text
    older = False  # whether anything older than the newest part was seen
    at = 0
    while at < len(lines):
        marks, text = lines[at]
        if not text:
            keys.append(keys[-1] if keys else ("newest", 0))
            at += 1
            continue
        while zones and zones[-1] > marks:
            zones.pop()
        if passed_on is not None and passed_on > marks:
            passed_on = None
        opening = _opening(lines, at)
        count, deeper = 1, 0
        if opening is not None:
            count, forwards = opening
            forwards = passed_on is None and (forwards or (forwarded and not older))
            following = _next(lines, at + count)
            if marks > before:
                around = marks  # it opens the quote that has just begun
            elif following is not None and following.marks > marks:
                around = following.marks  # it opens the quote that follows
                deeper = 1
            else:
                around = marks
                zones.append(marks)
            if forwards:
                passed_on = around
        keys.extend([_key(len(zones) + marks + deeper, passed_on)] * count)
        older = older or keys[-1][1] > 0
        before = marks
        at += count
    return keys


def _key(depth: int, passed_on: int | None) -> tuple[Kind, int]:
    if passed_on is not None:
        return "forwarded", min(max(depth, 1), DEEPEST)
    if depth:
        return "quoted", min(depth, DEEPEST)
    return "newest", 0


def _next(lines: Sequence[_Line], at: int) -> _Line | None:
    """The next line with text."""
    for line in lines[at : at + 5]:
        if line.text:
            return line
    return None


def _opening(lines: Sequence[_Line], at: int) -> tuple[int, bool] | None:
    """Whether an older mail begins here: how many lines introduce it, and whether they call it forwarded."""
    marks, text = lines[at]
    text = text.strip()
    if _DASHED.match(text):
        if _FORWARD.fullmatch(text):
            return 1 + _header_lines(lines, at + 1, marks), True
        if _ORIGINAL.fullmatch(text):
            return 1 + _header_lines(lines, at + 1, marks), False
        if _RULE.fullmatch(text):
            count = _block(lines, at + 1, marks)
            return (1 + count, False) if count else None
    if _SENDER.match(text):
        count = _block(lines, at, marks)
        if count:
            return count, False
    if _INTRO_BEGINS.match(text):
        count = _intro(lines, at, marks)
        if count:
            return count, False
    return None


def _intro(lines: Sequence[_Line], at: int, marks: int) -> int:
    """How many lines "On … wrote:" takes here; 0 when there is none."""
    joined = ""
    for count, line in enumerate(lines[at : at + INTRO_LINES], 1):
        if line.marks != marks or not line.text:
            return 0
        joined = f"{joined} {line.text.strip()}" if joined else line.text.strip()
        if len(joined) > 400:
            return 0
        if joined.endswith(":") and _INTRO.fullmatch(joined):
            return count
    return 0


def _block(lines: Sequence[_Line], at: int, marks: int) -> int:
    """How many lines a block of sender, date and another header takes here; 0 when there is none."""
    start = at
    while at < len(lines) and at < start + 2 and not lines[at].text:
        at += 1
    if at >= len(lines) or lines[at].marks != marks or not _SENDER.match(lines[at].text.strip()):
        return 0
    count = _header_lines(lines, at, marks)
    block = [line.text.strip() for line in lines[at : at + count]]
    if any(map(_WHEN.match, block)) and any(map(_OTHERS.match, block)):
        return at + count - start
    return 0


def _header_lines(lines: Sequence[_Line], at: int, marks: int) -> int:
    """How many lines from here are headers of an older mail, up to the last one that has a label."""
    count = 0
    labelled = False
    for number, line in enumerate(lines[at : at + HEADER_LINES], 1):
        if not line.text:
            if labelled:
                break
            continue
        if line.marks != marks:
            break
        text = line.text.strip()
        if _SENDER.match(text) or _WHEN.match(text) or _OTHERS.match(text):
            count = number
            labelled = True
        elif not labelled:
            break
    return count


# -- greeting and signature ---------------------------------------------------------------------------------

_SIGN_OFF = re.compile(
    r"(?:"
    r"(?:with )?(?:my )?(?:(?:best|kind|warm|kindest|warmest|many) )?regards|rgds"
    r"|best wishes|all the best|best|respectfully|cheers"
    r"|yours(?: (?:sincerely|faithfully|truly))?|(?:sincerely|faithfully|truly)(?: yours)?"
    r"|thanks(?: (?:again|a lot|in advance|so much|and (?:(?:best|kind) )?regards))?|many thanks"
    r"|thank you(?: (?:in advance|very much))?"
    r"|(?:serdecznie |gorąco )?pozdrawiamy?(?: serdecznie| ciepło)?|(?:z |łączę )?pozdrowieni(?:a|ami)|pozdr"
    r"|z poważaniem|z wyrazami szacunku|z szacunkiem|łączę wyrazy szacunku"
    r"|(?:z góry )?(?:bardzo )?dzięk(?:uję|ujemy|i)(?: (?:z góry|za pomoc|i pozdrawiam|bardzo))?|miłego dnia"
    r")(?!\w)(?P<rest>.{0,60})",
    re.IGNORECASE,
)
_NO_NAME = re.compile(r"[^\w\s,.!;'’–-]|[\d_]")
_SENT_FROM = re.compile(
    r"sent (?:from|with|via) (?:my|the|yahoo|proton|outlook|mail|gmail|samsung)\b.{0,60}"
    r"|get outlook for .{0,40}"
    r"|wysłan[oea] z (?:mojego|aplikacji|telefonu|urządzenia|programu|iphone|ipad|poczty|samsung).{0,60}"
    r"|pobierz (?:program )?outlook.{0,60}",
    re.IGNORECASE,
)
SIGNATURE_LINES = 8
"""Lines that may follow a sign-off; what is longer is text."""
SIGNATURE_WIDTH = 60
"""Characters of the longest line after a sign-off."""
DASHED_LINES = 15
"""Lines that may follow two dashes without a space, which do not always announce a signature."""


def without_signature(text: str) -> str:
    """A text up to its signature: `-- `, or a sign-off that only a few short lines follow."""
    lines = text.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    end = len(lines)
    if DASHES in lines:
        end = lines.index(DASHES)
    elif dashed := [number for number in filled[-DASHED_LINES - 1 :] if lines[number].strip() == "--"]:
        end = dashed[0]
    filled = [number for number in filled if number < end]
    for number in reversed(filled[-SIGNATURE_LINES - 1 :]):
        line = lines[number].strip()
        if _signs_off(line) or _SENT_FROM.fullmatch(line):
            end = number
        if len(line) > SIGNATURE_WIDTH:
            break
    return "\n".join(lines[:end]).rstrip()


def _signs_off(line: str) -> bool:
    match = _SIGN_OFF.fullmatch(line)
    if match is None:
        return False
    rest = match["rest"]
    # Either nothing follows, or a name: capitalised words, no sentence.
    words = [word for word in re.split(r"[\s,.!;–-]+", rest) if word]
    return len(words) <= 4 and all(word[0].isupper() for word in words) and not _NO_NAME.search(rest)


_GREETING = re.compile(
    r"(?:hello|hi|hey|dear|greetings|good (?:morning|afternoon|evening|day)|to whom it may concern"
    r"|dzie[nń] dobry|dobry wiecz[oó]r|witam|witajcie|witaj|cze[sś][cć]|hej"
    r"|szanown[iyae]|drodzy|drogi|droga)\b",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(
    r"all|team|there|everyone|everybody|sirs?|madam|or|and|ladies|gentlemen|friends|colleagues|support|service|again"
    r"|państw[oau]|pani[e]?|panowie|panu|wszy(?:scy|stkich|stkim)|serdecznie|ponownie|i|oraz|serwis|zespole",
    re.IGNORECASE,
)
"""Words without a capital that may stand between a greeting and its comma."""


def without_greeting(text: str) -> str:
    """A text without the greeting it begins with and the name in it; the rest of that line stays."""
    stripped = text.lstrip()
    match = _GREETING.match(stripped)
    if match is None:
        return text
    line_end = stripped.find("\n")
    line = stripped[match.end() : line_end if line_end >= 0 else len(stripped)]
    addressed = re.match(r"(?:[ ]+[^\W\d_][\w.'’-]*){0,5}?[ ]*(?:[,!.:;–-]+(?=\s|$)|$)", line)
    rest = line
    if addressed is not None and all(
        word[0].isupper() or _ADDRESSED.fullmatch(word)
        for word in re.findall(r"[^\W\d_][\w'’-]*", addressed[0])
    ):
        rest = line[addressed.end() :]
    remaining = rest.lstrip(" ,!.:;–-") + (stripped[line_end:] if line_end >= 0 else "")
    return remaining.lstrip()
