"""Phrases that may commit us to something, by language, as patterns for the beginning of a word.

They are marked for the person who reads a draft. A list like this misses most claims put in other words, so
nothing is refused because of it, and nothing passes because nothing was found.
"""

from __future__ import annotations

from collections.abc import Mapping

CLAIM_PHRASES: Mapping[str, tuple[str, ...]] = {
    "en": (
        r"refund\w*", r"reimburs\w*", r"money back", r"credit(?:ed)?\b", r"compensat\w*", r"free\b",
        r"no charge", r"at no cost", r"without charge", r"on us\b", r"replac\w*", r"exchang\w*",
        r"discount\w*", r"voucher\w*", r"guarantee\w*", r"promis\w*", r"warrant\w*", r"liab\w*",
        r"our fault", r"your fault", r"responsib\w*", r"lawyer\w*", r"legal\w*", r"court\b",
        r"caused? by", r"because of a", r"defect\w*", r"password\w*", r"\bPIN\b", r"danger\w*",
        r"unsafe", r"fire\b", r"shock\b", r"unplug\w*", r"immediately", r"today\b", r"tomorrow",
        r"weekend", r"shipped", r"on its way", r"approved\b", r"settled\b", r"cancel\w*", r"courier\w*",
        r"pick(?:ed)? up",
    ),
    "pl": (
        r"zwr(?:ot|óc)\w*", r"zwrac\w*", r"refund\w*", r"odszkodowan\w*", r"rekompens\w*",
        r"bezpłatn\w*", r"darmow\w*", r"za darmo", r"nieodpłatn\w*", r"wymian\w*", r"wymieni\w*",
        r"rabat\w*", r"zniżk\w*", r"bon\b", r"gwarant\w*", r"gwarancj\w*", r"obiecuj\w*",
        r"odpowiedzialno\w*", r"nasza wina", r"wina\b", r"prawni\w*", r"sąd\w*", r"spowodowan\w*",
        r"wad[aąęy]\b", r"hasł\w*", r"niebezpiecz\w*", r"pożar\w*", r"natychmiast\w*", r"dzisiaj",
        r"dziś\b", r"jutro", r"weekend\w*", r"wysłan\w*", r"kurier\w*", r"zatwierdzon\w*", r"anulowa\w*",
    ),
    "de": (
        r"erstatt\w*", r"rückerstatt\w*", r"geld zurück", r"gutgeschrieben", r"gutschrift\w*",
        r"entschädig\w*", r"kostenlos\w*", r"kostenfrei\w*", r"gratis", r"umsonst", r"austausch\w*",
        r"ersatz\w*", r"rabatt\w*", r"gutschein\w*", r"garant\w*", r"versprech\w*", r"haft\w*",
        r"unsere schuld", r"ihre schuld", r"anwalt\w*", r"gericht\w*", r"verursach\w*", r"defekt\w*",
        r"passwort\w*", r"gefahr\w*", r"gefährlich\w*", r"brand\b", r"sofort\w*", r"heute\b",
        r"morgen\b", r"wochenende", r"versandt", r"unterwegs", r"genehmigt", r"storn\w*", r"kurier\w*",
    ),
}  # fmt: skip
