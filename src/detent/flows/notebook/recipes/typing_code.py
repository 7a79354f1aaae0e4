"""Code that types columns: learned in the notebook from raw and typed values, applied again by the script.

`APPLYING` stands word for word in the notebook and in `outputs/predict.py`, so that a new table becomes what the
model was trained on. `LEARNING` stands in the notebook only.
"""

from __future__ import annotations

APPLYING = r'''
def number_in(text, decimal=".", percent=1.0):
    """The number in a text such as $1,250.00, 48 000 km, (300) or 12%; NaN if there is none."""
    found = re.search(r"\d[\d.,'\u2019\u00a0\u202f ]*(?:[eE][-+]?\d+)?|[.,]\d+(?:[eE][-+]?\d+)?", text)
    if not found:
        return np.nan
    digits = re.sub(r"['\u2019\u00a0\u202f ]", "", found.group())
    digits = digits.replace(".", "").replace(",", ".") if decimal == "," else digits.replace(",", "")
    try:
        number = float(digits.rstrip("."))
    except ValueError:  # Several points, such as in a date or a version
        return np.nan
    before, after = text[: found.start()].strip(), text[found.end() :].strip()
    if re.search(r"(^|[\s$\u20ac\u00a3\u00a5])[-\u2212][$\u20ac\u00a3\u00a5]?$|^\(", before) or after == "-":
        number = -number
    return number * percent if after.startswith("%") else number


def as_text(value):
    """A value as text, whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def plain(text):
    """A text without its case and its spare blanks."""
    return " ".join(text.casefold().split())


def typed_column(values, rule):
    """The values as the model knows them; what cannot be read counts as missing."""
    if rule["kind"] == "number":
        if pd.api.types.is_numeric_dtype(values):
            numbers = values.astype("float64")
        else:
            known = values.dropna().map(as_text)
            read = {text: number_in(text, rule["decimal"], rule["percent"]) for text in known.unique()}
            read.update((text, rule["words"][plain(text)]) for text in read if plain(text) in rule["words"])
            numbers = known.map(read).reindex(values.index).astype("float64")
        return numbers.where(~numbers.isin([np.inf, -np.inf, *rule["missing"]]))
    if rule["kind"] == "date":
        if pd.api.types.is_datetime64_any_dtype(values):
            moments = pd.to_datetime(values, utc=True)
        else:
            text = values.map(as_text, na_action="ignore").astype(object)
            moments = pd.Series(pd.NaT, index=values.index, dtype="datetime64[us, UTC]")
            for form in [*rule["formats"], "mixed"]:
                left = moments.isna() & text.notna()
                if left.any():
                    read = pd.to_datetime(text[left], format=form, errors="coerce", utc=True,
                                          dayfirst=rule["day_first"] and form == "mixed")
                    moments = moments.where(~left, read.reindex(moments.index).astype(moments.dtype))
        return moments.dt.tz_convert(rule["zone"]) if rule["zone"] else moments.dt.tz_localize(None)
    known = values.dropna().map(as_text)
    missing = set(rule["missing"])
    read = {text: rule["spelled"].get(text, rule["plain"].get(plain(text), text)) for text in known.unique()}
    read.update((text, np.nan) for text in read if text not in rule["spelled"] and plain(text) in missing)
    return known.map(read).reindex(values.index).astype(object)
'''.strip()

LEARNING = r'''
DATE_FORMATS = [
    "ISO8601", "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y",
    "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y",
    "%d-%b-%Y", "%d-%b-%y", "%Y-%m", "%m/%Y", "%b %Y", "%B %Y", "%Y",
]


def same_values(some, other):
    """Row by row, whether two columns hold the same value or are both missing."""
    both_missing = some.isna() & other.isna()
    if pd.api.types.is_numeric_dtype(other):
        numbers, wanted = some.astype("float64"), other.astype("float64")
        return both_missing | pd.Series(np.isclose(numbers, wanted, rtol=1e-9, atol=1e-12), index=some.index)
    if pd.api.types.is_datetime64_any_dtype(other):
        return both_missing | (some.astype(object) == other.astype(object))
    return both_missing | (some.astype(object) == other.astype(object))


def learn_typing(raw, typed):
    """The rule that makes the typed column out of the raw one."""
    some = raw.index[:: max(1, len(raw) // 5000)]
    if pd.api.types.is_datetime64_any_dtype(typed):
        rule = {"kind": "date", "formats": [], "day_first": False, "zone": str(typed.dt.tz or "")}
        text, wanted = raw[some].map(as_text, na_action="ignore").astype(object), pd.to_datetime(typed[some], utc=True)
        left = wanted.notna() & text.notna()
        hours = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
        forms = [form + hour for form in DATE_FORMATS for hour in (hours if form != "ISO8601" else hours[:1])]
        while left.any() and len(rule["formats"]) < 4:
            right = {form: (pd.to_datetime(text[left], format=form, errors="coerce", utc=True) == wanted[left]).sum() for form in forms}
            best = max(right, key=right.get)
            if not right[best]:
                break
            rule["formats"].append(best)
            left &= pd.to_datetime(text, format=best, errors="coerce", utc=True).isna()
        rule["day_first"] = any(form.startswith("%d") for form in rule["formats"])
        return rule
    if pd.api.types.is_numeric_dtype(typed):
        text = raw.dropna().map(as_text)
        pairs = pd.DataFrame({"text": text, "typed": typed[text.index].astype("float64")}).drop_duplicates()
        readings = {}
        for decimal in (".", ","):
            for percent in (1.0, 0.01):
                read = pairs["text"].map(lambda value: number_in(value, decimal, percent))
                readings[decimal, percent] = np.isclose(read, pairs["typed"], rtol=1e-9, atol=1e-12)
        decimal, percent = max(readings, key=lambda reading: readings[reading].sum())
        read = pairs["text"].map(lambda value: number_in(value, decimal, percent))
        # Numbers that stand for "not known", and words that stand for a number.
        sentinels = sorted(set(read[pairs["typed"].isna() & read.notna() & np.isfinite(read)]))[:50]
        words = pairs[pairs["typed"].notna() & ~readings[decimal, percent]]
        words = words[~words["text"].str.contains(r"\d")]
        return {"kind": "number", "decimal": decimal, "percent": percent, "missing": sentinels,
                # Written as plain numbers, a new file may write them with a comma.
                "plain_numbers": pd.api.types.is_numeric_dtype(raw) and not pd.api.types.is_bool_dtype(raw),
                "words": {plain(text): float(number) for text, number in words.head(1000).itertuples(index=False)}}
    text = raw.map(as_text, na_action="ignore").astype(object)
    pairs = pd.DataFrame({"text": text, "typed": typed.astype(object)}).dropna(subset="text").drop_duplicates()
    known = pairs[pairs["typed"].notna()]
    values = [value.item() if hasattr(value, "item") else value for value in known["typed"]]
    spelled = dict(zip(known["text"], values))
    levels = {}
    for text, value in spelled.items():
        levels.setdefault(plain(text), value)
    lost = sorted({plain(text) for text in pairs.loc[pairs["typed"].isna(), "text"]} - set(levels))
    if len(spelled) > 5000:  # Free text, names: what matters is what was changed.
        spelled, levels = {text: value for text, value in spelled.items() if text != value}, {}
    return {"kind": "category", "spelled": spelled, "plain": levels, "missing": lost[:1000]}


def typing_rules():
    """How each column that the model needs is made of the raw table, and how well the rule does it."""
    rules, agreement = [], {}
    for column in X_train.columns:
        rule = learn_typing(raw_dataset.loc[df_typed.index, column], df_typed[column])
        some = df_typed.index[:: max(1, len(df_typed) // 5000)]
        written = raw_dataset.loc[some, column].map(as_text, na_action="ignore").astype(object)
        again = typed_column(written, rule)
        agreement[column] = float(same_values(again, df_typed.loc[some, column]).mean())
        rules.append({"column": column, **rule})
    return rules, agreement
'''.strip()
