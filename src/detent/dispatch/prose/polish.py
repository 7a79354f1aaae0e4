"""Polish, as the checks of texts know it."""

from __future__ import annotations

import re

from detent.dispatch.prose.language_data import LanguageData

_FORMS: dict[int | None, str] = {
    0: "zero zera", 1: "jeden jedna jedno jednego jednej jednym jedną", 2: "dwa dwie dwóch dwu dwom dwoma dwaj",
    3: "trzy trzech trzem trzema", 4: "cztery czterech czterem", 5: "pięć pięciu", 6: "sześć sześciu",
    7: "siedem siedmiu", 8: "osiem ośmiu", 9: "dziewięć dziewięciu", 10: "dziesięć dziesięciu",
    11: "jedenaście jedenastu", 12: "dwanaście dwunastu", 13: "trzynaście trzynastu", 14: "czternaście czternastu",
    15: "piętnaście piętnastu", 16: "szesnaście szesnastu", 17: "siedemnaście siedemnastu",
    18: "osiemnaście osiemnastu", 19: "dziewiętnaście dziewiętnastu", 20: "dwadzieścia dwudziestu",
    30: "trzydzieści trzydziestu", 40: "czterdzieści czterdziestu", 50: "pięćdziesiąt pięćdziesięciu",
    60: "sześćdziesiąt sześćdziesięciu", 70: "siedemdziesiąt siedemdziesięciu", 80: "osiemdziesiąt osiemdziesięciu",
    90: "dziewięćdziesiąt dziewięćdziesięciu", 100: "sto stu", 200: "dwieście dwustu", 300: "trzysta trzystu",
    400: "czterysta", 500: "pięćset", 600: "sześćset", 1000: "tysiąc tysiące tysięcy",
    None: "kilka kilku kilkoma parę paru kilkanaście kilkunastu kilkadziesiąt kilkuset kilkaset pół półtora półtorej",
}  # fmt: skip
_STEMS = {2: "dwu", 3: "trzy", 4: "cztero", 5: "pięcio", 6: "sześcio", 7: "siedmio", 8: "ośmio", 9: "dziewięcio",
          10: "dziesięcio", 12: "dwunasto", 14: "czternasto", 18: "osiemnasto", 24: "dwudziestocztero",
          30: "trzydziesto", 36: "trzydziestosześcio", 1: "jedno"}  # fmt: skip
_ORDINALS = (
    "pierwsz drugi trzeci czwart piąt szóst siódm ósm dziewiąt dziesiąt jedenast dwunast trzynast czternast piętnast "
    "szesnast siedemnast osiemnast dziewiętnast dwudziest"
).split()
_END = "(?:ego|y|ym|i|im|iego|go)?"
_MONTHS = ("stycz(?:eń|nia|niu|niem)", "lut(?:y|ego|ym)", "mar(?:zec|ca|cu|cem)", "kwie(?:cień|tnia|tniu|tniem)",
           "maj(?:a|u|em)?", "czerw(?:iec|ca|cu|cem)", "lip(?:iec|ca|cu|cem)", "sierp(?:ień|nia|niu|niem)",
           "wrze(?:sień|śnia|śniu|śniem)", "październik(?:a|u|iem)?", "listopad(?:a|zie|em)?",
           "grud(?:zień|nia|niu|niem)")  # fmt: skip

POLISH = LanguageData(
    words=frozenset(
        """
        nie sie jest sa byl byla bylo bedzie w we z ze na do od o po u za dla przez przy pod nad przed oraz i a ale
        lub albo czy jak jesli jezeli gdy kiedy gdzie co ktory ktora ktore ktorego to ten ta te tego tej tym tych
        jego jej ich nam nas nasz nasza nasze naszym naszego panstwa panstwo panstwu pan pani pana panu pania
        prosimy prosze dziekujemy dziekuje dzien dobry witam szanowni szanowny szanowna powazaniem pozdrawiamy
        pozdrowieniami wyrazami szacunku dzial serwis serwisu serwisant zespol urzadzenie urzadzenia urzadzeniem
        numer numeru numerze numerem seryjny seryjnego seryjnym gwarancja gwarancji gwarancje gwarancja naprawa
        naprawe naprawy zgloszenie zgloszenia wiadomosc wiadomosci tabliczka tabliczce tabliczke tabliczki zdjecie
        wystarczy tez juz jeszcze tylko niestety mozemy mozna moze aby zeby sprawie sprawach kontakt adres ciagu dni
        roboczych robocze mies miesiecy chetnie dobra mamy rejestrze bardzo tak tyle wiec dlatego jako bez nic swoj
        wykonamy otrzymaja objete znaleziono zalaczniku odpowiedz odpowiedziec panie mailu
        pozdrawiam ma maja on ona ono go ja jej im mu byc byly byli zostal zostala zostalo zostanie zostaly roku nr raz razie dnia
        dniem ponownie przykro powodu potwierdzamy informujemy przesylamy przeslac przeslemy naprawimy naprawic
        odplatnie odplatna odplatna bezplatna bezplatnie wycene wycena diagnoza diagnoze moga mogliby musza trzeba nalezy
        wkrotce wszystko wszystkie kazdy kazda dalszej nadal teraz tutaj tam gdyby niz nawet poniewaz gdyz ani zatem
        wtedy podczas odezwie odezwiemy skontaktuje skontaktujemy sprawdzic napisac napisze pisac zadzwoni zadzwonic
        pytanie pytania pytan wazna wazny wazne pilna pilne pilnych zyczymy milego panem panstwem technik serwisanta
        skrzynka skrzynki nasi naszych naszej takze rowniez bedziemy beda jestesmy sa oto mieli mogli
        """.split()
    ),
    letters="ąćęłńóśźż",
    business=frozenset(
        """
        panstwo panstwa panstwu panstwem pan pana panu panem panie pani pania pan panowie twoj twoja twoje twojego twojej
        twoim twojemu tobie toba ciebie cie ci was wam wami wasz wasza wasze waszego waszej waszym wasza dzial serwis
        serwisu serwisowy klient klienta klientow klienci zespol biuro obsluga obslugi gwarancja gwarancji naprawa
        zgloszenie numer urzadzenie internet wi fi bluetooth dzien dobry szanowni szanowny szanowna status data uwaga
        """.split()
    ),
    abbreviations="ul|al|pl|os|dr|inż|mgr|prof|nr|tel|np|św|im",
    numbers={
        **{word: value for value, words in _FORMS.items() for word in words.split()},
        **{stem: value for value, stem in _STEMS.items()},
        "dwudziestego": 20, "siódmego": 7, "ósmego": 8, "szóstego": 6, "piątego": 5, "czwartego": 4, "dziewiątego": 9,
    },
    joiners=("i",),
    ordinals={
        day: f"{_ORDINALS[day - 1]}{_END}" if day <= 20 else f"dwudziest{_END}[ ]{_ORDINALS[day - 21]}{_END}"
        if day < 30 else f"trzydziest{_END}" if day == 30 else f"trzydziest{_END}[ ]pierwsz{_END}"
        for day in range(1, 32)
    },
    months=dict(enumerate(_MONTHS, 1)),
    any_month=re.compile(rf"(?<!\w)(?:{'|'.join(_MONTHS)})(?!\w)", re.IGNORECASE),
    day_forms=(r"{day}\.?[ ]{month}{year}", r"{ordinal}[ ]{month}{year}"),
    month_ends=r"końc(?:a|em|u)[ ]{month}{year}",
    weekdays=("poniedział(?:ek|ku|kiem|ki)", "wtor(?:ek|ku|kiem|ki)", "środ(?:a|ę|y|ą)|środzie", "czwart(?:ek|ku|kiem|ki)",
              "piąt(?:ek|ku|kiem|ki)", "sobot(?:a|ę|y|ą)|sobocie", "niedziel(?:a|ę|i|ą|e)"),
    relative_days=re.compile(
        r"(?<!\w)(?:dziś|dzisiaj|dzisiejsz\w+|jutro|jutrzejsz\w+|pojutrze|wczoraj|wczorajsz\w+|przedwczoraj|weekend\w*"
        r"|(?:przyszł|następn|najbliższ|zeszł|ubiegł|bieżąc)\w+[ ](?:dni\w*|tygod\w+|miesią\w+|rok\w*)"
        r"|(?:tym|tego|ten)[ ](?:tygod\w+|miesią\w+|roku)|końc(?:a|em|u)[ ](?:dnia|tygodnia|miesiąca|roku))(?!\w)",
        re.IGNORECASE,
    ),
    times=re.compile(
        r"(?<!\w)(?:wieczor\w+|wieczór|popołudni\w+|(?:nad|z)[ ]ranem|nocą|w[ ]nocy|po[ ](?:obiedzie|lunchu|śniadaniu|kolacji)"
        r"|przed[ ](?:obiadem|lunchem|świętami|wieczorem)|w[ ]porze[ ](?:obiadu|lunchu)|latem|(?:tego|do|od|przyszłego|zeszłego)[ ]lata"
        r"|(?:w|na|tej|do|przed)[ ](?:zim|wiosn|jesieni)\w*|zimą|wiosną|jesienią|za[ ](?:dzień|chwilę[ ]lub[ ]dwie)|nazajutrz|Boż\w+[ ]Narodzeni\w+|świąt|święta\w*|Wielkanoc\w*|roczn\w+|kwartał\w*|wakacj\w+"
        r"|(?:od|między)[ ](?:" + "|".join(_ORDINALS[:12]) + r")(?:ej|iej|ą|ią)[ ](?:do|a)"
        r"|rok|tydzień|miesiąc|godzinę|dobę|kwadrans\w*|(?:w|samo)[ ]południe|(?:o|do)[ ]północy"
        r"|(?:przed|po)[ ]połud(?:niem|niu)|w[ ]ciągu[ ]dnia"
        r"|(?:w[ ]ciągu|w[ ]przeciągu|około|przez|przed[ ]upływem|do|od|po)[ ](?:godzin(?:y|ie)|dob(?:y|ie)|tygodni(?:a|u)"
        r"|miesiąc(?:a|u)|roku)"
        r"|(?:o|około|przed|po|do|od)[ ](?:" + "|".join(_ORDINALS[:12]) + r")(?:ej|iej|ą|ią)"
        r"(?=[ ]*(?:[.,;:!?)\n]|$|rano|wieczorem|trzydzieści|po[ ]połud|w[ ]nocy)))(?!\w)",
        re.IGNORECASE,
    ),
    year_words=r"[ ](?:{year}|dwa tysiące[ ](?:{rest}))(?:[ ]?r\.|[ ]roku)?",
    units={
        "minutes": "minut(?:a|y|ę)?", "hours": "godzin(?:a|y|ę)?|godz\\.?", "working_days": "(?:dni|dnia|dzień)[ ]robocz(?:ych|e|y|ego)",
        "days": "dni|dnia|dzień|dób|doby|dobę", "weeks": "tygodni(?:e|a|u)?|tydzień", "months": "miesi(?:ęcy|ące|ąca|ąc)|mies\\.?",
        "years": "lat(?:a|ach)?|rok(?:u)?", "percent": "procent(?:a)?|%",
    },
    other_units="sekund(?:a|y|ę|zie)?|noc(?:y|e)?|dekad(?:a|y|ę)?|kwartał(?:y|ów|u)?",
    many=re.compile(r"(?<!\w)(?:setk(?:a|i|ę|ą)|setek|tysiącami|milion\w*|miliard\w*|tuzin\w*)(?!\w)", re.IGNORECASE),
    shares=re.compile(
        r"(?<!\w)(?:podw[oa]\w+|potr[oa]\w+|podwójn\w+|potrójn\w+|połow\w+|połówk\w+|ćwierć\w*|ćwiartk\w+|pół(?![ ]roku)"
        r"|(?:dwu|trzy|cztero|dziesięcio|kilku)krotn\w+|(?:dwa|trzy|cztery|pięć|dziesięć|kilka)[ ]razy"
        r"|(?:jedn|dw|trzeci|czwart|piąt)\w*[ ](?:trzeci|czwart|piąt|częś)\w*)(?!\w)",
        re.IGNORECASE,
    ),
    charges=re.compile(
        r"(?<!\w)(?:cen\w+|koszt\w*|opłat\w+|płac\w+|zapłac\w+|gwaranc\w+|rachun\w+|faktur\w+|kwot\w+|stawk\w+|zwrot\w*"
        r"|wysyłk\w+|przesyłk\w+|rabat\w*|zniżk\w+)(?!\w)",
        re.IGNORECASE,
    ),
    articles=frozenset(_FORMS[1].split()),
    fillers=r"(?:pełn(?:ych|e)|kolejn(?:ych|e)|najbliższ(?:ych|e)|dalsz(?:ych|e)|następn(?:ych|e))[ ]",
    compounds={"months": "miesięczn\\w+", "days": "dniow\\w+", "weeks": "tygodniow\\w+", "years": "letni\\w*|roczn\\w+",
               "hours": "godzinn\\w+"},
    halves={(6, "months"): "pół[ ]roku|półroczn\\w+"},
    money=r"stów\w+|dyszk\w+|dych\w+|tysiak\w*|euro|eurocent\w*|dolar\w*|cent(?:a|y|ów)?|złot(?:y|e|ego|ych|ówek|ówki|ówkę)|zł|grosz(?:a|e|y)?|funt\w*"
          r"|frank(?:i|ów|a)?|koron(?:a|y)?",
    greeting=r"dzień[ ]dobry|dobry[ ]wieczór|witam|witaj|cześć|hej|szanown[ayie]\w*|drog[ia]|"
             r"(?=pan(?:ie|i)[ ])",
    closing=r"pozdrawiam\w*(?:[ ]serdecznie)?|poważaniem|pozdrowieniami|szacunku|dziękujemy|dziękuję",
    generic=frozenset(
        "pan pani panie panowie panstwo panstwa panu pana serdecznie wszystkich wszystkim klient kliencie klientko zespol "
        "zespole ponownie i".split()
    ),
    titles="pan|pani|panie|pana|panu|panem|panią|serwisant\\w*|technik|pracownik|kolega|koleżanka|inżynier|kierownik",
    inflections=(
        ("a", ("o", "u", "i", "y", "e")), ("ia", ("io", "iu", "i")), ("ek", ("ku", "ka")), ("el", ("le", "la")),
        ("l", ("le",)), ("t", ("cie",)), ("", ("u", "ie", "e", "zie", "ze", "owi", "ego", "emu", "a", "em", "iem")), ("ska", ("skiej",)),
    ),
    digit_talk=r"cyfr(?:a|ę|y|ą)|zero|i|lub|czy|a",
    letter_talk=re.compile(r"\bliter(?:a|ę|y|ą)\b|(?<![\w-])(?:O|B|S|Q|D|G|l)(?![\w-])"),
    at_dot="at|małpa|kropka|dot",
    spelled="https?|hxxps?|www|małpa|kropka|ukośnik|slash",
)  # fmt: skip
