"""Which of the two languages a mail is written in, and which of its lines are greeting and signature."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from detent.apps.warranty.domain import TextPart
from detent.apps.warranty.domain.words import fold, spaced, word_set

Language = Literal["en", "pl"]

_POLISH = word_set(
    """
    nie sie prosze jest sa nr seryjny seryjnego seryjnym numer numeru numerem dzien dobry witam czesc
    szanowni panstwo panstwa pozdrawiam dziekuje dziekujemy poniewaz na od po ze za dla czy jak ale
    oraz lub tylko juz jeszcze bardzo mam mamy moja moj moje nasz nasza nasze ktory ktora ktore ten ta
    tego tej przez przy pod jestem bedzie byl byla bylo moge mozna kiedy gdzie dlaczego co w z o u we
    ku zamowienie faktura gwarancja gwarancji gwarancje urzadzenie urzadzenia drukarka drukarki pomoc
    pomocy pilne dziala dzialaja uprzejmie
    """
)
_ENGLISH = word_set(
    """
    the is are was were please serial number and my our your it its of in on at not we you for with
    has have had hello hi dear thanks thank regards does doesn't don't isn't won't can cannot could
    would should this that these there what when where how after before since from an be been but or
    if they he she will still warranty device any some need help broken working work works it's i'm
    """
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_POLISH_LETTERS = frozenset("ąćęłńóśźżĄĆĘŁŃÓŚŹŻ")

_GREETING = re.compile(
    r"""(?x)
      (?:dzien|dobry)\ (?:dobry|wieczor) | witam(?:\ serdecznie|\ panstwa)? | szanown[aeiy]\ pan(?:stwo|ie|i)?
    | czesc | hej | hello(?:\ (?:there|all|team|everyone))? | hi(?:\ (?:there|all|team|everyone))?
    | dear\ (?:sir|madam|team|all|sirs|support|service|customer)(?:\ (?:or|and|/)\ (?:sir|madam))?(?:\ team)?
    | good\ (?:morning|afternoon|evening|day) | to\ whom\ it\ may\ concern
    """
)
_CLOSING = re.compile(
    r"""(?x)
      (?:(?:best|kind|kindest|warm|many|with\ (?:best|kind))\ )?regards
    | (?:many\ )?thanks | thank\ you | cheers
    | best(?:\ wishes)? | yours(?:\ (?:sincerely|faithfully|truly))? | sincerely(?:\ yours)?
    | (?:serdecznie\ )?pozdrawiam(?:y)?(?:\ serdecznie)? | (?:lacze\ )?pozdrowienia | z\ powazaniem
    | z\ wyrazami\ szacunku | (?:z\ gory\ )?dziekuj[ey](?:my)?(?:\ (?:i\ pozdrawiam|z\ gory|bardzo))? | pozdr
    | sent\ from\ my | wyslane\ z
    """
)
_MOST_SIGNED = 12
"""Lines a signature may have below its closing words."""


def language_of(parts: Iterable[TextPart], subject: str = "", default: Language = "en") -> Language:
    """The language to answer in: that of the newest part without its signature.

    If the newest part is empty, the subject and the forwarded part decide.
    """
    every = list(parts)
    newest = "\n".join(part.text for part in every if part.kind == "newest")
    text = without_signature(without_notices(newest))
    if not _WORD.search(text):
        text = "\n".join([subject, *(part.text for part in every if part.kind == "forwarded")])
    words = _WORD.findall(fold(text))
    polish, english = sum(word in _POLISH for word in words), sum(word in _ENGLISH for word in words)
    if polish != english:
        return "pl" if polish > english else "en"
    return "pl" if _POLISH_LETTERS & set(text) else default


_NOTICES = (
    re.compile(r"\b(?:e-?mail|message|attachments?|transmission)\b"),
    re.compile(r"\b(?:confidential|privileged|intended (?:solely|only)|addressee|unintended recipient)"),
    re.compile(r"\b(?:wiadomosc|wiadomosci|korespondencja|e-?mail|mail)\b"),
    re.compile(r"\b(?:poufn|przeznaczon[aey] (?:wylacznie|tylko|jedynie)|prawnie chronion)"),
    re.compile(r"\b(?:danych osobowych|dane osobowe|personal data)\b"),
    re.compile(r"\b(?:administrator|rodo\b|gdpr\b|przetwarzan|data controller|processed)"),
)
"""In pairs: a paragraph that matches both patterns of a pair is a legal notice below a company's mails."""
_FEWEST_NOTICED = 12
"""Words of the shortest such notice."""


def without_notices(text: str) -> str:
    """A text without notices about confidentiality and data protection, in both languages."""
    if len(text) < 80:
        return text
    paragraphs: list[str] = []
    below = False  # the first paragraph is the sender's own
    for paragraph in re.split(r"(\n[ \t]*\n)", text):
        plain = spaced(paragraph) if below and _NOTICED.search(paragraph) else ""
        pairs = zip(_NOTICES[::2], _NOTICES[1::2], strict=True)
        if len(plain.split()) >= _FEWEST_NOTICED and any(
            a.search(plain) and b.search(plain) for a, b in pairs
        ):
            continue
        below = below or bool(paragraph.strip())
        paragraphs.append(paragraph)
    return "".join(paragraphs)


_NOTICED = re.compile(
    r"confidential|privileged|intended|addressee|poufn|przeznaczon|chronion|osobow|personal data",
    re.IGNORECASE,
)
"""A word of every notice; paragraphs without one are not examined further."""


def without_greeting(text: str) -> str:
    """A text without the greeting it begins with."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        return text
    line = lines[first].strip()
    plain = spaced(line[:200])
    match = _GREETING.match(plain)
    if match is None or plain[match.end() : match.end() + 1].isalnum():
        return text
    # "Hello Anna," is a greeting as a whole; "Hello, my printer broke" continues after the comma.
    head, *rest = re.split(r"[,!.:;-]", line, maxsplit=1)
    behind = head.split()[len(match.group().split()) :]
    named = len(behind) <= 3 and all(word[:1].isupper() for word in behind)
    lines[first] = " ".join([*([] if named else behind), *rest])
    return "\n".join(lines)


def without_signature(text: str) -> str:
    """A text without its closing words, the name below them and what follows a line of two dashes."""
    lines = text.rstrip().split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() in ("--", "—", "__"):
            lines = lines[:number]
            break
    for number in range(len(lines) - 1, max(-1, len(lines) - 2 - _MOST_SIGNED), -1):
        plain = spaced(lines[number][:200]).strip(" ,.!-")
        match = _CLOSING.match(plain)
        if match is None or re.match(r"[^\W_]", plain[match.end() :]):
            continue
        # "Thanks for the quick help with …" is a sentence, not a closing.
        if len(plain[match.end() :].split()) <= 4:
            lines = lines[:number]
    return "\n".join(_without_name(lines))


def _without_name(lines: list[str]) -> list[str]:
    """Lines without a name at their end: one to three words, each with a capital, nothing else."""
    lines = list(lines)
    while lines and not lines[-1].strip():
        lines.pop()
    above = [line for line in lines[:-1] if line.strip()]
    if above and re.fullmatch(r"(?:[^\W\d_a-z][^\W\d_]*[.-]?\s?){1,3}", lines[-1].strip()[:80]):
        name = lines[-1].split()
        if len(name) <= 3 and all(word[:1].isupper() for word in name):
            lines.pop()
    return lines
