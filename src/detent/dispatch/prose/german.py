"""German, as the checks of texts know it."""

from __future__ import annotations

import re

from detent.dispatch.prose.language_data import LanguageData

_ONES = ("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
         "achtzehn neunzehn").split()  # fmt: skip
_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_UNDER_100 = {
    **{word: value for value, word in enumerate(_ONES)},
    **{word: 20 + 10 * place for place, word in enumerate(_TENS)},
    **{f"{one}und{ten}": 20 + 10 * place + value
       for place, ten in enumerate(_TENS) for value, one in enumerate(_ONES[1:10], 1)},
}  # fmt: skip
_ORDINALS = ("erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft dreizehnt vierzehnt fünfzehnt "
             "sechzehnt siebzehnt achtzehnt neunzehnt").split()  # fmt: skip
_BY_VALUE = {value: word for word, value in _UNDER_100.items()}
_MONTHS = ("Jan(?:uar|\\.)?|Jänner", "Feb(?:ruar|\\.)?", "März|Mrz\\.?", "Apr(?:il|\\.)?", "Mai", "Jun(?:i|\\.)?",
           "Jul(?:i|\\.)?", "Aug(?:ust|\\.)?", "Sept?(?:ember|\\.)?", "Okt(?:ober|\\.)?", "Nov(?:ember|\\.)?",
           "Dez(?:ember|\\.)?")  # fmt: skip

GERMAN = LanguageData(
    words=frozenset(
        """
        der die das den dem des ein eine einen einem einer eines und oder aber auch nicht kein keine keinen ist sind
        war waren wird werden wurde hat haben hatte kann konnen konnten konnte mochten muss bitte danke dank vielen
        guten tag hallo sehr geehrte geehrter geehrten damen herren frau herr liebe lieber mit von vom zu zum zur bei
        beim bis fur auf aus an am im in ins um nach vor uber unter ohne durch wir uns unser unsere unseren unserem sie
        ihnen ihr ihre ihren ihrem ihres ihrer es er ich man wenn ob dass weil damit so noch schon nur gern gerne leider
        hier dort diese dieser dieses diesem nachricht nummer seriennummer gerat gerats garantie ticket service
        serviceteam techniker werktagen werktage arbeitstagen monate monaten reparatur reparieren foto typenschild
        freundlichen freundliche grussen grusse grussen beste besten viele senden schicken schreiben finden steht melden
        meldet sich innerhalb gedeckt abgelaufen angebot kostenlos moment andere anderen wie was wo welche seit trotzdem
        einmal vielleicht mehr gute gutes deshalb als etwas alle moglich naturlich bereits sowie dann also gegen selbst
        sein bin hatten sollte sollten wollen will darf nun jetzt dazu dafur damit darum davon daran geben gibt nehmen
        lassen kommt kommen macht machen gehen geht neu neue neuen gerade immer wieder zwischen wahrend bevor sobald
        """.split()
    ),
    letters="äöüß",
    business=frozenset("garantie service gerat ticket".split()),
    abbreviations="dr|prof|nr|tel|str|bzw|z\\.b",
    numbers={
        **_UNDER_100, "eins": 1, "eine": 1, "einen": 1, "einem": 1, "einer": 1, "zwo": 2, "hundert": 100, "tausend": 1000,
        **{f"{lead}hundert{word}": base + value for lead, base in (("", 100), ("ein", 100), ("zwei", 200), ("drei", 300))
           for word, value in _UNDER_100.items() if value},
        "zweihundert": 200, "dreihundert": 300, "fünfhundert": 500, "paar": None, "einige": None, "einigen": None,
        "wenige": None, "wenigen": None, "mehrere": None, "mehreren": None, "halbes": None, "halben": None,
        "halbe": None, "halb": None, "anderthalb": None, "eineinhalb": None, "zweieinhalb": None, "dutzend": 12,
    },
    joiners=("und",),
    ordinals={
        day: (f"{_ORDINALS[day - 1]}e[nrs]?" if day <= 19 else f"{_BY_VALUE[day]}ste[nrs]?") for day in range(1, 32)
    },
    months=dict(enumerate((f"(?:{month})" for month in _MONTHS), 1)),
    any_month=re.compile(
        r"(?<!\w)(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)s?(?!\w)"
    ),
    day_forms=(r"{day}\.[ ]?{month}{year}", r"{ordinal}[ ]{month}{year}"),
    month_ends=r"Ende[ ]{month}{year}",
    weekdays=("montags?", "dienstags?", "mittwochs?", "donnerstags?", "freitags?", "samstags?|sonnabends?", "sonntags?"),
    relative_days=re.compile(
        r"(?<!\w)(?:heute|gestern|(?<!guten )morgen|übermorgen|vorgestern|wochenendes?"
        r"|(?:nächste|kommende|diese|letzte|folgende)[nrsm]?[ ](?:tag|woche|monat|jahr)\w*"
        r"|ende der woche|ende des (?:tages|monats|jahres))(?!\w)",
        re.IGNORECASE,
    ),
    times=re.compile(
        r"(?<!\w)(?:abends|morgens|nachts|am[ ](?:Abend|Nachmittag|Vormittag)|(?:nach|vor)[ ]dem[ ](?:Mittag|Mittagessen|Frühstück|Abend)"
        r"|(?:diesen|nächsten|letzten|vergangenen)[ ](?:Frühling|Sommer|Herbst|Winter)|Viertelstunden?|Vierteljahr\w*|Halbjahr\w*|Weihnachten|Ostern|Neujahr|Pfingsten|(?:im|zum|bis zum|vor dem)[ ](?:Frühling|Sommer|Herbst|Winter)"
        r"|(?:vor|nach)?mittags|Mitternacht|(?:innerhalb|binnen|im[ ]Laufe)[ ](?:der|des|dieser|dieses)[ ]"
        r"(?:Stunde|Tages|Woche|Monats|Jahres)|(?:halb|viertel[ ](?:vor|nach))[ ](?:" + "|".join(_ONES[2:13]) + r"|eins)"
        r"|(?:" + "|".join(_ONES[1:13]) + r")[ ]Uhr|(?:um|gegen|bis|ab)[ ](?:" + "|".join(_ONES[2:13]) + r"|eins)"
        r"(?=[ ]*(?:[.,;:!?)\n]|$)))(?!\w)",
        re.IGNORECASE,
    ),
    year_words=r"[ ](?:{year}|zweitausend(?:und)?(?:{rest}))",
    units={
        "minutes": "Minuten?", "hours": "Stunden?", "working_days": "(?:Werk|Arbeits)tag(?:en?|s)?", "days": "Tag(?:en?|s)?",
        "weeks": "Wochen?", "months": "Monat(?:en?|s)?", "years": "Jahr(?:en?|s)?", "percent": "Prozent|%",
    },
    other_units="Sekunden?|Nächte?|Nacht|Jahrzehnte?|Quartale?",
    many=re.compile(r"(?<!\w)(?:Dutzende?|Hunderte|Tausende|Million(?:en)?|Milliarden?)(?!\w)"),
    shares=re.compile(
        r"(?<!\w)(?:(?:ver)?doppel\w*|(?:ver)?dreifach\w*|zweifach\w*|vierfach\w*|Hälfte|halbier\w+|Drittel|Viertel|Fünftel"
        r"|halbe[nrsm]?(?![ ]Jahr)|(?:zwei|drei|vier|fünf|zehn)[ ]?mal)(?!\w)",
        re.IGNORECASE,
    ),
    charges=re.compile(
        r"(?<!\w)(?:\w*preis\w*|\w*kosten|kostet|\w*gebühr\w*|garantie\w*|gewährleistung\w*|versand\w*|\w*zahl(?:en|t|ung)"
        r"|rechnung\w*|betrag\w*|rabatt\w*)(?!\w)",
        re.IGNORECASE,
    ),
    articles=frozenset("ein eine einen einem einer eins acht".split()),
    fillers=r"(?:volle[nr]?|weitere[nr]?|ganze[nr]?|nächsten|folgenden|paar)[ ]",
    compounds={"months": "monatige\\w?|Monats\\w+", "days": "tägige\\w?", "weeks": "wöchige\\w?", "years": "jährige\\w?|Jahres\\w+",
               "hours": "stündige\\w?"},
    halves={(6, "months"): "(?:ein[ ])?halbe[sn][ ]Jahr|halbjährige\\w?"},
    money=r"euros?|eurocents?|dollars?|cents?|pfund|franken|zloty|kronen?|rappen|tausender|hunderter|fünfziger|zwanziger|fuffi|euronen",
    greeting=r"hallo|guten[ ](?:tag|morgen|abend)|grüß[ ]gott|moin|servus|sehr[ ]geehrte[rn]?|liebe[r]?|werte[r]?",
    closing=r"grüßen|grüße|gruß|grüsse[n]?|dank",
    generic=frozenset(
        "herr herrn frau familie dr prof damen und herren kunde kundin kunden team alle zusammen".split()
    ),
    titles="herrn?|frau|dr|prof|technikerin|techniker|kollegin|kollege|mitarbeiterin|mitarbeiter|sachbearbeiterin",
    inflections=(("", ("s",)),),
    digit_talk=r"die|eine|Ziffer|Zahl|und|oder|null",
    letter_talk=re.compile(r"\bBuchstaben?\b|(?<![\w-])(?:O|B|S|Q|D|G|l|I)(?![\w-])"),
    at_dot="at|ät|dot|punkt",
    spelled="https?|hxxps?|www|schrägstrich|slash",
    capital_nouns=True,
)  # fmt: skip
