"""Words before a serial number, between it and its label, and before other numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from detent.apps.warranty.domain import tokens
from detent.apps.warranty.domain.tokens import Word
from detent.apps.warranty.domain.words import word_set

_SERIAL = word_set(
    """
    sn sns snr sno serial serials serialno serialnr serialnum serialnumber serialnumbers serialid
    serialcode serno sernr nrser nrsn snnr snno
    seriennummer seriennr serienr serienummer serienummern sarjanumero sorozatszam seerianumber
    序列号 序列號 序號 シリアル番号 製造番号
    """
)
_SERIAL_STEMS = ("seriov", "сериин", "серіин")
"""Folded stems of the adjective in Czech, Slovak, Russian and Ukrainian."""
MANY = word_set(
    """
    sns serials serialnumbers seryjne seryjnych seryjnymi
    """
)
NUMBER = word_set(
    """
    no nos nr nrs num numer numeru numerem numerze numery numerow numerami number numbers id code kod
    numero nummer cislo cisla cislem номер номером номера
    """
)
BETWEEN = word_set(
    """
    is are was to jest sa brzmi reads says shows being of for from on at in the this that these my our
    your its it a an device devices machine machines printer printers unit units scanner scanners
    scale scales kiosk till terminal display screen product appliance item sticker stickers plate
    label labels back bottom rear side rating below follows following as printed stated given here one
    s if known required optional would be found wymagany opcjonalnie znajduje sie urzadzenia urzadzen
    urzadzeniu drukarki drukarce maszyny sprzetu wagi wadze skanera skanerze kasy kasie tego tej ten
    ta mojego mojej moj moja naszego naszej nasz nasza na z od dla w tabliczce tabliczki znamionowej
    naklejce obudowie spodzie tylu ponizej podaje podany widnieje urzadzenie
    """
)
"""Words between a label and its token."""

_OTHER_STEMS = (
    "order", "invoice", "model", "zamowien", "faktur", "zgloszen", "telefon", "phone", "ticket", "tracking",
    "przesylk", "paczk", "firmware", "inwentarz", "inventory", "regon", "pesel", "umow", "reklamac",
)  # fmt: skip
_OTHER = word_set(
    """
    tel fax faks kom gsm mobile mob cell nip iban vat po fv fvs fa fvat inv ord zam rma ref sku ean
    imei mac pn partno ver bic swift krs konto whatsapp zgl wz p/n typ typu art vin
    """
)
_OTHER_NUMBERED = (
    "account", "customer", "client", "klient", "case", "part", "product", "produkt", "article", "artykul",
    "katalog", "contract", "version", "wersj", "error", "blad", "bled", "room", "pokoj", "asset", "build",
    "type", "batch", "reference", "postal", "claim", "policy", "polis", "lot", "job", "project", "projekt",
)  # fmt: skip
"""Labels only if a number sign, a colon or "no." follows, because they are everyday words too."""

_NOT_SERIAL = word_set(
    """
    port ports cable cables interface interfaces connection console communication communications bus
    adapter killer line data link connector cord protocol
    """
)
"""Before these words, "serial" does not mean a serial number."""

LIST_WORDS = word_set(
    """
    and or i oraz lub albo
    """
)
BREAKS = frozenset(",;!?")
LIST_SIGNS = frozenset(["", ",", ";", "&", "+", "/", "|", ", -", "-", "*", "•"])

_LACKING = word_set(
    """
    without lost missing where wheres unreadable illegible unknown lack lacks bez brak brakuje gdzie
    zgubilem zgubilam
    """
)
_NEGATIONS = word_set(
    """
    not dont cannot cant couldnt didnt doesnt never unable nie nigdzie
    """
)
_HAVING = word_set(
    """
    have has had know find see read locate remember found got get provide sure mam ma mamy znam znamy
    moge mozemy mozna widze widac potrafie jest podaje podalem podalam posiadam posiadamy wiem
    pamietam znalazlem znalazlam znajduje znalezc odczytac umiem
    """
)
UNKNOWN_AFTER = word_set(
    """
    unreadable illegible missing unknown worn faded gone lost rubbed scratched nieczytelny nieczytelna
    zatarty starty brak nieznany zamazany zdarty
    """
)


def is_label(words: Sequence[Word], place: int) -> bool:
    """Whether the word is, or ends, a label of a serial number."""
    word = words[place]
    tight = word.tight
    if tight in _SERIAL:
        return tight != "serial" or _names_a_number(words, place)
    if len(tight) > 40 or any(map(str.isdigit, tight)):
        return False
    if "seryjn" in tight:
        return True
    if tight.startswith(_SERIAL_STEMS):
        return _names_a_number(words, place)
    before = words[place - 1].tight if place else ""
    if tight == "serie":  # "numéro de série", "numero di serie"
        return before in ("de", "di") and place > 1 and words[place - 2].tight in (*NUMBER, "n", "numar")
    if tight == "cislo":
        return before.startswith("vyrobn")
    if tight.startswith("fabr"):  # "ustawienia fabryczne" are factory settings
        return before in NUMBER
    if tight == "ser":
        after = words[place + 1].tight if place + 1 < len(words) else ""
        return before in NUMBER or after in NUMBER
    return False


def _names_a_number(words: Sequence[Word], place: int) -> bool:
    """Whether "serial" means a number, not a serial port or its cable."""
    return place + 1 == len(words) or words[place + 1].folded not in _NOT_SERIAL


def belongs_to_label(words: Sequence[Word], place: int) -> bool:
    """Whether the word is part of a label, as "nr" is in "nr seryjny"."""
    if is_label(words, place):
        return True
    if words[place].tight not in NUMBER:
        return False
    return (place + 1 < len(words) and is_label(words, place + 1)) or (
        place > 0 and is_label(words, place - 1)
    )


def other_label(word: Word) -> Literal["", "other", "numbered"]:
    folded = word.folded
    if len(folded) > 40 or any(map(str.isdigit, folded)):
        return ""
    if folded in _OTHER or word.tight in _OTHER or folded.startswith(_OTHER_STEMS):
        return "other"
    return "numbered" if folded.startswith(_OTHER_NUMBERED) else ""


_HEAD = re.compile(r"([^\W\d_]+)([-/._])([^\W_].*)", re.DOTALL)
_SN_HEAD = re.compile(r"(s[-/.]n)[-/._]?([^\W_].*)", re.IGNORECASE | re.DOTALL)


def parted(words: Iterable[Word]) -> Iterator[Word]:
    """The words, with labels separated from tokens they are joined to by a dot or dash."""
    for word in words:
        while len(word.text) <= 80 and any(map(str.isdigit, word.text)):
            match = _SN_HEAD.fullmatch(word.text)
            if match is not None:
                head, rest, joint = match.group(1), match.group(2), ""
            else:
                match = _HEAD.fullmatch(word.text)
                if match is None:
                    break
                head, joint, rest = match.groups()
                first = tokens.make_word(head, word.before, joint)
                loose = first.tight in NUMBER or first.tight in ("ser", "sn") or len(first.tight) < 3
                by_dot = joint == "." and (first.tight in NUMBER or first.tight == "ser" or _other(first))
                if not (by_dot or (not loose and (first.tight in _SERIAL or "seryjn" in first.tight))):
                    break
            yield tokens.make_word(head, word.before, joint)
            word = tokens.make_word(rest, joint, word.after)
        yield word


def _other(word: Word) -> bool:
    return other_label(word) == "other"


def negated(words: Sequence[Word], place: int) -> bool:
    """Whether the clause says that the number is unknown: "we cannot find the serial number"."""
    clause: list[str] = []
    for at in range(place, max(-1, place - 9), -1):
        if at < place:
            clause.append(words[at].folded)
        if BREAKS & set(words[at].before) or ". " in words[at].before or ":" in words[at].before:
            break
    clause_words = set(clause)
    if clause_words & _LACKING or (clause and clause[0] == "no"):
        return True
    return bool(clause_words & _NEGATIONS) and bool(clause_words & _HAVING)
