"""English, as the checks of texts know it."""

from __future__ import annotations

import re

from detent.dispatch.prose.language_data import LanguageData

_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
_MONTHS = ("Jan(?:uary|\\.)?", "Feb(?:ruary|\\.)?", "Mar(?:ch|\\.)?", "Apr(?:il|\\.)?", "May", "June?\\.?", "July?\\.?",
           "Aug(?:ust|\\.)?", "Sept?(?:ember|\\.)?", "Oct(?:ober|\\.)?", "Nov(?:ember|\\.)?", "Dec(?:ember|\\.)?")  # fmt: skip

ENGLISH = LanguageData(
    words=frozenset(
        """
        the a an is are was were be been being has have had do does did not no yes and or but if so as at by for
        from in into of off on to with within without about after before until since than then there here this that
        these those it its we us our you your they them their he she his her my me i who what when where which how
        will would can could may might should must please thank thanks hello hi dear good kind best warm regards
        wishes sincerely service desk team device serial number warranty repair ticket message mail photo plate
        send check find help contact covered new all any some more most one just also too only again still very
        get got need needs look looks back call write working days business months up out over cannot am sorry
        unfortunately free charge quote cheers yours many news technician technicians diagnosis paid ended offer comes
        like go goes ahead answer reply tell touch simply want know under begin rating let whether hear open opened
        anything nothing something everything next keep once twice delivery note question questions fault subject
        registry cover checked check possible happy worry give given take taken both already such through well however
        therefore although though because while during against between every each other another same own part first
        second last never always often soon ask use used using see say come came make made able must shall nice day
        trouble hand address place right wrong new old long short right time way yet neither nor ever far near near
        let's ends runs valid expired lapsed case receive step digit number letter thing things please kindly goodbye
        """.split()
    ),
    letters="",
    business=frozenset(
        """
        customer customers service services support team warranty department desk repair repairs technician sales
        registry ticket device office centre center mailbox mail email manager company management order invoice
        internet wi fi bluetooth english polish german french spanish italian dutch european mr mrs ms sir madam
        subject reference status date serial number product model description summary step note important warm kind
        """.split()
    ),
    abbreviations="mr|mrs|ms|dr|prof|st|no|tel|e\\.g|i\\.e",
    numbers={
        **{word: value for value, word in enumerate(_ONES.split())},
        **{word: 20 + 10 * place for place, word in enumerate(_TENS.split())},
        "a": 1, "an": 1, "oh": 0, "hundred": 100, "hundreds": None, "thousand": 1000, "thousands": None, "dozen": 12,
        "couple": 2, "few": None, "several": None, "half": None, "single": 1, "double": None,
    },
    joiners=("and", "of"),
    ordinals={
        day: _ORDINALS[day - 1] if day <= 20 else f"twenty[- ]{_ORDINALS[day - 21]}" if day < 30
        else "thirtieth" if day == 30 else "thirty[- ]first"
        for day in range(1, 32)
    },
    months=dict(enumerate(_MONTHS, 1)),
    any_month=re.compile(
        r"(?<!\w)(?:January|February|March|April|June|July|August|September|October|November|December"
        r"|(?:Jan|Feb|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)(?=\.?[ ]\d)"
        r"|(?:(?<=in )|(?<=of )|(?<=by )|(?<=until )|(?<=since )|(?<=early )|(?<=late )|(?<=mid )|(?<=mid-))May"
        r"|May(?=[ ]\d))(?!\w)"
    ),
    day_forms=(
        r"(?:the[ ])?{day}(?:st|nd|rd|th)?(?:[ ]of)?[ ]{month}{year}",
        r"{month}[ ](?:the[ ])?{day}(?:st|nd|rd|th)?{year}",
        r"(?:the[ ])?{ordinal}(?:[ ]of)?[ ]{month}{year}",
        r"{month}[ ](?:the[ ])?{ordinal}{year}",
    ),
    month_ends=r"(?:the[ ])?end[ ]of[ ]{month}{year}",
    weekdays=("mondays?", "tuesdays?", "wednesdays?", "thursdays?", "fridays?", "saturdays?", "sundays?"),
    relative_days=re.compile(
        r"(?<!\w)(?:(?:first|last|next)[ ]hour|today|tonight|tomorrow|yesterday|overnight|weekends?|(?:next|this|last|coming|following|same)[ ]"
        r"(?:day|week|month|year|morning|afternoon|evening)|end of the (?:day|week|month|year)|fortnight)(?!\w)",
        re.IGNORECASE,
    ),
    times=re.compile(
        r"(?<!\w)(?:noon|midday|midnight|midweek|o['’]clock|decades?|(?:half|quarter)[ ](?:past|to)"
        r"|lunch(?:time)?s?|(?:this|next|last|late|early|mid|each|every)[ -](?:spring|summer|autumn|fall|winter)"
        r"|(?:by|until|till|before|after|around|each|every)[ ](?:the[ ])?(?:morning|afternoon|evening|breakfast|dinner|dark)"
        r"|Christmas|Easter|New Year\w*|Thanksgiving|(?:in|by|before|after|until|till|over|end of)[ ](?:the[ ])?"
        r"(?:spring|summer|autumn|winter|holidays?)|first thing|in the (?:morning|afternoon|evening)"
        r"|from[ ](?:" + "|".join(_ONES.split()[1:13]) + r")[ ](?:to|until|till)"
        r"|(?:within|inside|in|during|under|for)[ ](?:the|this|that)[ ](?:hour|day|week|month|year)"
        r"|(?:at|by|before|after|around|until|till)[ ](?:" + "|".join(_ONES.split()[1:13]) + r")"
        r"(?=[ ]*(?:[.,;:!?)\n]|$|sharp|a\.?m|p\.?m|in[ ]the[ ](?:morning|afternoon|evening))))(?!\w)",
        re.IGNORECASE,
    ),
    year_words=r",?[ ](?:{year}|two thousand(?:[ ]and)?[ ](?:{rest})|twenty[ -](?:{rest}))",
    units={
        "minutes": "minutes?", "hours": "hours?|hrs?", "working_days": "(?:working|business)[ ]days?", "days": "days?",
        "weeks": "weeks?", "months": "months?", "years": "years?", "percent": "percent|per cent|%",
    },
    other_units="seconds|secs|nights?|decades?|quarters?",
    many=re.compile(r"(?<!\w)(?:dozens?|hundreds|thousands|millions?|billions?)(?!\w)", re.IGNORECASE),
    shares=re.compile(
        r"(?<!\w)(?:half|halve[sd]?|(?:a|one|two|three)[ -](?:third|quarter|fifth|tenth)s?|doubl(?:e|es|ed|ing)(?![- ]check)"
        r"|tripl(?:e|es|ed|ing)|twice (?:the|as|that|your)|(?:two|three|four|five|ten)[ -](?:times|fold)|twofold|threefold)(?!\w)",
        re.IGNORECASE,
    ),
    charges=re.compile(
        r"(?<!\w)(?:pric\w+|costs?|fees?|charge[ds]?|bills?|invoices?|warrant\w+|guarantees?|cover|shipping|postage|rates?"
        r"|amounts?|pay\w*|paid|refund\w*|expenses?)(?!\w)",
        re.IGNORECASE,
    ),
    articles=frozenset({"a", "an"}),
    fillers=r"(?:full|whole|calendar|more|further|additional|of|other)[ ]",
    compounds={"months": "month", "days": "day", "weeks": "week", "years": "year", "hours": "hour",
               "working_days": "(?:working|business)[ -]day"},
    halves={(6, "months"): "half[ ]a[ ]year"},
    money=r"euros?|eurocents?|dollars?|cents?|pounds?(?:[ ]sterling)?|pence|penn(?:y|ies)|quid|bucks?|fivers?|tenners?"
          r"|(?:a|one|two|three|four|five|six|ten|couple of|few|hundred)[ ]grand|zloty(?:s|ch)?|z[łl]ot(?:y|ych|e)"
          r"|francs?|yen|crowns?|bitcoins?",
    greeting=r"hello|hi|hey|dear|good[ ](?:morning|afternoon|evening|day)|greetings",
    closing=r"regards|wishes|sincerely|faithfully|thanks|thank you|best|cheers",
    generic=frozenset(
        "mr mrs ms miss mx dr prof sir sirs madam customer colleague colleagues there all everyone everybody team "
        "friend friends and again valued ladies gentlemen".split()
    ),
    titles="mr|mrs|ms|miss|dr|prof|professor|technician|engineer|colleague|manager|agent|specialist|expert",
    inflections=(),
    digit_talk=r"an?|the[ ]digit|the[ ]number|the[ ]figure|digit|and|or|zero|the",
    letter_talk=re.compile(r"\bletters?\b|(?<![\w-])(?:O|l|B|S|Z|G|Q|D)(?![\w-])|(?:an|the|letter) I(?!\w)"),
    at_dot="at|dot",
    spelled="https?|hxxps?|www|slash",
)  # fmt: skip
