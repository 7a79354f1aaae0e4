"""Links and addresses: those of the facts, and none else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from detent.dispatch.prose.language_data import LanguageData

_ADDRESS = re.compile(r"[^\s<>()\[\]\",;:@]+@[^\s<>()\[\]\",;:@]+")
_LINK = re.compile(
    r"""(?x)
      (?i:[a-z][a-z0-9+.-]{1,20}://\S+) | (?i:\bwww\.\S+) | \]\( | (?i:\b(?:mailto|tel|skype):\S+)
    | (?<![\w.-])(?:[\w-]{2,63}\.)+[^\W\d_]{2,24}/\S+
    | (?<![\w.-])(?:[\w-]{2,63}\.)+(?i:com|net|org|info|biz|eu|pl|de|uk|fr|it|io|co|me|ly|app|dev|shop|site
        |online|link|click|live|store|tech|cloud|page|example|test|invalid)\b
    | (?<![\w.-])(?:[a-z\d-]{2,63}\.)+[a-z]{2,24}\b
    | (?<!\w)(?:[^\W\d_][ ]){3,}[^\W\d_](?!\w)
    | @
    """
)
_PHONE = re.compile(r"\+?\(?\d(?:[ ()./-]{0,3}\d){6,}")


def contact_patterns(contacts: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """The accepted forms of contacts: the whole text, its addresses, links and telephone numbers."""
    for contact in contacts:
        words = r"\s+".join(map(re.escape, contact.split()))
        yield re.compile(rf"(?<![\w@.-]){words}{_end(contact)}", re.IGNORECASE)
        for piece in (*_ADDRESS.findall(contact), *_LINK.findall(_ADDRESS.sub(" ", contact))):
            yield address_pattern(piece.rstrip(".,;"))
        for phone in _PHONE.findall(_ADDRESS.sub(" ", contact)):
            digits = r"[ ()./-]{0,3}".join(re.sub(r"\D", "", phone))
            yield re.compile(rf"(?<![\w.+-])\(?\+?{digits}(?!\w|[-./ ]\d)")


def address_pattern(address: str) -> re.Pattern[str]:
    """One address as a whole token."""
    return re.compile(rf"(?<![\w@.+-]){re.escape(address)}(?![\w@-]|\.\w)", re.IGNORECASE)


def _end(text: str) -> str:
    return r"(?![\w@-]|[./]\w)" if re.search(r"\w$", text) else ""


def unexplained(text: str, data: LanguageData) -> Iterator[int]:
    """Links and addresses in a text whose facts are masked."""
    yield from (match.start() for match in _LINK.finditer(text))
    spelled = re.compile(
        rf"[(\[{{][ ]?(?:{data.at_dot})[ ]?[)\]}}]|[ ](?:{data.at_dot})[ ](?:com|net|org|example)\b", re.I
    )
    yield from (match.start() for match in spelled.finditer(text))
    words = re.compile(rf"(?<![\w-])(?:{data.spelled})(?![\w-])", re.IGNORECASE)
    yield from (match.start() for match in words.finditer(text))


def paths(text: str, known: Iterable[str]) -> Iterator[int]:
    """Paths below a host of a known contact or address that leave out its last part (`firm/track`)."""
    hosts = {
        label
        for address in known
        for host in re.findall(r"(?:@|://|^)([\w.-]+)", address)
        for label in host.split(".")[:-1]
    }
    for label in hosts - {"www"}:
        pattern = re.compile(rf"(?<![\w@.-]){re.escape(label)}/\w", re.IGNORECASE)
        yield from (match.start() for match in pattern.finditer(text))
