"""Code of cells that gives columns their types: numbers and dates in text, categories, what means missing.

The functions here are text, written into cells and into `outputs/predict.py`, which has to read a new table
exactly as the notebook read the first one. They share one plain dictionary of rules, made in stage 2 and kept
as `processing_pipeline_doc["rules"]`:

    kinds        {column: "numeric" | "boolean" | "datetime" | "categorical" | "text"}, with the target;
                 "boolean" is a target of True and False, boolean features are 0 and 1
    numbers      {column: {"decimal": "." or ",", "scale": {unit: factor}}}, columns with numbers in text
    dates        {column: {"format": "%d.%m.%Y", "ISO8601" or "mixed", "day_first": bool}}
    sentinels    {column: [number, ...]}, numbers that stand for no value
    spelling     {column: {category, folded: the spelling that is used}}

A new table is read as `valid_values(typed_table(table, rules), rules)`.
"""

from __future__ import annotations

NUMBERS_IN_TEXT = r'''
MISSING_WORDS = {
    "",
    *"#div/0! #n/a #name? #null! #num! #ref! #value! - -- --- – — . .. ? ??".split(),
}
MISSING_WORDS |= set("n.a. n/a nan nil null <na> <null>".split())
# Where numbers or dates are expected, these words too say that there is none.
NO_VALUE = (
    MISSING_WORDS
    | set("na none unknown missing tbd k.a.".split())
    | {"not available", "keine angabe"}
)
MONEY = set("$ € £ ¥ ₹ ₽ ₩ ₺ us$ r$ usd eur euro gbp chf jpy inr rs".split())
MULTIPLES = {"k": 1e3, "m": 1e6, "mio": 1e6, "b": 1e9, "bn": 1e9}
NUMBER_TEXT = re.compile(
    r"(?P<open>\()?\s*(?P<sign>[-+−])?\s*"
    r"(?P<money>US\$|R\$|[$€£¥₹₽₩₺]|(?:USD|EUR|GBP|CHF|JPY|INR|Rs)\b\.?)?\s*(?P<late_sign>[-−])?\s*"
    r"(?P<digits>\d[\d.,'’\u00a0\u202f ]*|[.,]\d+)(?P<power>[eE][-+]?\d+)?\s*"
    r"(?P<unit>[%‰$€£¥₹₽₩₺]|°?[^\W\d_][^\W\d_/²³. ]{0,11}(?:/[^\W\d_]{1,8})?[²³.]?)?\s*(?(open)\))"
)


def number_of_digits(digits, decimal):
    """The value of digits, or None if their marks are not set as this decimal mark demands."""
    whole, _, fraction = digits.strip().partition(decimal)
    marks = r"[,'’\u00a0\u202f ]" if decimal == "." else r"[.'’\u00a0\u202f ]"
    groups = re.split(marks, whole) if whole else ["0"]
    if not all(group.isdigit() for group in groups) or not (fraction.isdigit() or not fraction):
        return None
    if len(groups) > 1:  # 1,234,567 and 12,34,567 are numbers; 1,23 and 1.2.2020 are not
        inner = [len(group) for group in groups[1:-1]]
        if len(groups[0]) > 3 or len(groups[-1]) != 3 or any(size not in (2, 3) for size in inner):
            return None
    return float(f"{''.join(groups)}.{fraction or '0'}")


def number_rule(texts, decimal=".", share=0.95):
    """How the numbers of a text column are written, or None if it holds something else."""
    counts = texts.astype(str).str.strip().value_counts().head(5000)
    counts = {text: n for text, n in counts.items() if text.casefold() not in NO_VALUE}
    matches = {text: NUMBER_TEXT.fullmatch(text) for text in counts if len(text) <= 40}
    matches = {text: match for text, match in matches.items() if match}
    needed = share * sum(counts.values())
    if not matches or sum(counts[text] for text in matches) < needed:
        return None
    if any(re.match(r"0\d", match["digits"]) for match in matches.values()):
        return None  # 01234 is a code and no quantity
    if len({match["money"] for match in matches.values() if match["money"]}) > 1:
        return None  # amounts in several currencies cannot be compared
    units = {match["unit"].casefold() for match in matches.values() if match["unit"]}
    money = units & MONEY or any(match["money"] for match in matches.values())
    scale = {}
    if units <= set(MULTIPLES) and ("k" in units or len(units) > 1 or money):
        scale = {unit: MULTIPLES[unit] for unit in sorted(units)}
    elif len(units) > 1:
        return None  # nor can 5 kg and 300 g
    readable = {".": 0, ",": 0}
    for text, match in matches.items():
        for mark in readable:
            if number_of_digits(match["digits"], mark) is not None:
                readable[mark] += counts[text]
    mark = max(readable, key=lambda mark: (readable[mark], mark == decimal))
    if money and readable["."] == readable[","]:
        # 12.500 € could be read either way. Money has no three decimals: the mark parts thousands.
        dots, commas = (any(sign in m["digits"] for m in matches.values()) for sign in ".,")
        mark = "," if dots and not commas else "." if commas else mark
    return {"decimal": mark, "scale": scale} if readable[mark] >= needed else None


def read_number(text, rule):
    """The number that a text holds, or NaN."""
    match = NUMBER_TEXT.fullmatch(text.strip()) if len(text) <= 60 else None
    value = number_of_digits(match["digits"], rule["decimal"]) if match else None
    if value is None:
        return np.nan
    value *= rule["scale"].get((match["unit"] or "").casefold(), 1.0)
    value *= float("1" + (match["power"] or ""))
    negative = match["open"] or (match["sign"] or match["late_sign"] or "+") in "-−"
    return -value if negative else value
'''

DATES_IN_TEXT = r'''
DATE_TEXT = re.compile(r"\d{1,4}[-/. ]|\d{8}$|[^\W\d_]{3,9}[ .,]+\d")
DAYS = "%d.%m.%Y %d.%m.%y %m/%d/%Y %d/%m/%Y %m/%d/%y %d/%m/%y %d-%m-%Y %m-%d-%Y".split()
CLOCKS = "| %H:%M| %H:%M:%S| %I:%M %p| %I:%M:%S %p".split("|")
DATE_FORMATS = [
    *"ISO8601|%Y/%m/%d|%Y/%m/%d %H:%M|%Y/%m/%d %H:%M:%S|%Y.%m.%d|%Y%m%d".split("|"),
    *(day + clock for clock in CLOCKS for day in DAYS),
    *"%d %b %Y|%d %B %Y|%d-%b-%Y|%d-%b-%y|%b %d, %Y|%B %d, %Y|%b %d %Y|%b %Y|%B %Y|%b-%Y".split(
        "|"
    ),
]


def date_rule(texts, day_first=False, share=0.95):
    """The format of the dates in a text column, or None if it holds something else."""
    written = texts.astype(str).str.strip().unique()
    written = [text for text in written if text.casefold() not in NO_VALUE][:1000]
    sample = [text for text in written if len(text) <= 35 and DATE_TEXT.match(text)]
    if not sample or len(sample) < share * len(written):
        return None
    best = None
    for form in DATE_FORMATS:
        days = pd.to_datetime(pd.Series(sample), format=form, errors="coerce", utc=True)
        readable = int(days.dt.year.between(1700, 2250).sum())
        rank = (readable, form.startswith("%d") == day_first)  # 3/4/2020 could be either
        if readable >= share * len(written) and (best is None or rank > best[0]):
            best = (rank, form)
    return {"format": best[1], "day_first": day_first} if best else None


def read_dates(texts, rule):
    """The dates of a text column; what is no date becomes missing. Times with a zone become UTC."""
    texts = texts.astype(str).str.strip()
    written = pd.Series(texts.unique(), dtype=object)
    more = {"dayfirst": rule["day_first"]} if rule["format"] == "mixed" else {}
    days = pd.to_datetime(written, format=rule["format"], errors="coerce", utc=True, **more)
    return texts.map(dict(zip(written, days.dt.tz_localize(None))))
'''

COLUMN_KINDS = r'''
ID_WORDS = {"id", "ids", "key", "uuid", "guid", "identifier"}


def words_of(name):
    """The words of a column name, whether it is written order_id, OrderID or order id."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", str(name))
    return re.findall(r"[^\W_]+", parts.casefold())


def comparable(values):
    """The values, with lists and dictionaries written out so that they can be counted."""
    if values.dtype != object:
        return values
    nested = values.map(lambda value: isinstance(value, (list, dict, set, np.ndarray)))
    return values.where(~nested, values[nested].map(str)) if nested.any() else values


def is_truth(values):
    """Whether a column holds True and False, missing values apart."""
    if pd.api.types.is_bool_dtype(values):
        return True
    present = values.dropna()
    return present.dtype == object and 0 < len(present) == sum(
        isinstance(value, (bool, np.bool_)) for value in present
    )


def is_number(values):
    """Whether a column holds numbers."""
    return pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)


def column_kind(name, values, decimal=".", day_first=False):
    """What a column holds, and how one can tell."""
    present = comparable(values.dropna())
    distinct = present.nunique()
    if distinct == 0:
        return "constant", "has no value"
    if distinct == 1 and len(present) == len(values):
        return "constant", "it has a single value"
    if pd.api.types.is_datetime64_any_dtype(present):
        return "datetime", "it is read as dates"
    if is_truth(values):
        return "categorical", "it is true or false"
    if pd.api.types.is_timedelta64_dtype(values):
        return "numeric", "it holds durations"
    named_id = bool(ID_WORDS & set(words_of(name)))
    all_differ = distinct == len(present) > 1
    if is_number(present):
        whole = bool((present == present.round()).all())
        if all_differ and whole and named_id:
            return "id", "it is named like an identifier and differs in every row"
        span = present.max() - present.min()
        if all_differ and whole and present.min() in (0, 1) and span == len(present) - 1:
            return "id", "it only numbers the rows"
        return "numeric", "it holds whole numbers" if whole else "it holds numbers"
    texts = present.astype(str)
    if date_rule(texts, day_first):
        return "datetime", "its texts are dates"
    if number_rule(texts, decimal):
        return "numeric", "its texts are numbers"
    if texts.head(2000).str.split().str.len().mean() > 5:
        return "text", "its values have more than five words on average"
    if distinct > 0.95 * len(present) and (len(present) > 20 or named_id):
        return "id", "nearly every row has a value of its own"
    return "categorical", f"it has {distinct} distinct values"
'''

ROW_KEYS = r'''
def keys_of(table, known_ids=()):
    """Columns that name a row: with equal rows set aside, (nearly) every row has a value of its own."""
    rest = table[~table.duplicated()]
    return [
        name
        for name in table.columns
        if (name in known_ids or ID_WORDS & set(words_of(name)))
        and rest[name].notna().all()
        and rest[name].nunique() >= max(0.99 * len(rest), 2)
    ]
'''

CONSTANT_COLUMNS = r'''
def constant_columns(table, keep=()):
    """Columns that say nothing, each with the reason."""
    reasons = {}
    for name in table.columns:
        present = table[name].dropna()
        if name not in keep and present.empty:
            reasons[name] = "has no value"
        elif name not in keep and len(present) == len(table) and present.nunique() == 1:
            reasons[name] = "has the same value in every row"
    return reasons
'''

TYPED_TABLE = r'''
DURATION_TEXT = r"-?\d+ days?( [-+]?\d\d:\d\d:\d\d(\.\d+)?)?"  # as pandas writes durations


def values_of_kind(values, kind, number=None, date=None):
    """The values of a column in the type of its kind."""
    present = values.dropna()
    if kind == "boolean":
        return values.astype(object).map({True: True, False: False})
    if kind == "numeric":
        if is_truth(values):
            return values.astype(object).map({True: 1.0, False: 0.0}).astype(float)
        if is_number(values):
            plain = isinstance(values.dtype, np.dtype)  # Int64 and its like become NumPy's types
            return values if plain else values.astype(float)
        if pd.api.types.is_timedelta64_dtype(values):
            return values.dt.total_seconds()
        rule = number or {"decimal": ".", "scale": {}}
        texts = present.astype(str)
        if number is None and texts.str.fullmatch(DURATION_TEXT).all():
            spans = pd.to_timedelta(texts, errors="coerce").dt.total_seconds()
            return spans.reindex(values.index).astype(float)
        read = texts.map({text: read_number(text, rule) for text in texts.unique()})
        return read.reindex(values.index).astype(float)
    if kind == "datetime":
        if pd.api.types.is_datetime64_any_dtype(values):
            zone = getattr(values.dtype, "tz", None)
            return values.dt.tz_convert("UTC").dt.tz_localize(None) if zone else values
        if is_number(present):  # 20240131
            present = present.astype("int64")
        days = read_dates(present, date or {"format": "mixed", "day_first": False})
        return pd.to_datetime(days.reindex(values.index))
    if is_number(values):  # as a category, 3 and 3.0 are the same
        texts = present.astype(float).map(
            lambda value: f"{value:.0f}" if value.is_integer() else f"{value}"
        )
    else:
        texts = comparable(present.astype(object)).astype(str).str.strip()
    texts = texts[~texts.str.casefold().isin(MISSING_WORDS)]
    return texts.astype(object).reindex(values.index)


def typed_table(table, rules):
    """The columns that have a kind, each in its type. Rows and their index stay."""
    numbers, dates = rules.get("numbers", {}), rules.get("dates", {})
    columns = {
        name: values_of_kind(table[name], kind, numbers.get(name), dates.get(name))
        for name, kind in rules["kinds"].items()
        if name in table.columns
    }
    return pd.DataFrame(columns, index=table.index)
'''

VALID_VALUES = r'''
def spelling_key(text):
    """What all spellings of one category have in common."""
    return " ".join(str(text).split()).casefold()


def valid_values(table, rules):
    """The table without infinities and sentinels, with one spelling for each category."""
    columns = {}
    for name in table.columns:
        values = table[name]
        if pd.api.types.is_float_dtype(values):
            values = values.replace([np.inf, -np.inf], np.nan)
        if name in rules.get("sentinels", {}):
            values = values.mask(values.isin(rules["sentinels"][name]))
        if name in rules.get("spelling", {}):
            used = rules["spelling"][name]
            values = values.map({t: used.get(spelling_key(t), t) for t in values.dropna().unique()})
        columns[name] = values
    return pd.DataFrame(columns, index=table.index)
'''
