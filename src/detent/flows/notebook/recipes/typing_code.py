"""Code that keeps how columns got their types, so that a new table gets the same ones.

The rules are those of stage 2 (`column_typing.py`). They are saved as `models/typing.json` beside the model,
with what each column was when the first table was read. `READ_AGAIN` stands in the notebook, which checks it,
and in the script.
"""

from __future__ import annotations

READ_AGAIN = r'''
TRUTH_WORDS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def as_first_read(values, form, decimal="."):
    """The texts of a new table as the first table was read: as numbers, true and false, or text."""
    if is_number(values) or is_truth(values) or form == "text":
        return values
    texts = values.dropna().astype(str)
    if form == "truth":
        read = {text: TRUTH_WORDS.get(text.strip().casefold()) for text in texts.unique()}
        return texts.map(read).astype(object).reindex(values.index)
    rule = {"decimal": decimal, "scale": {}}
    return (
        texts.map({text: read_number(text, rule) for text in texts.unique()})
        .reindex(values.index)
        .astype(float)
    )


def typed_again(table, saved, decimal="."):
    """The columns that the model needs, typed as it knows them; what cannot be read is missing."""
    forms, rules = saved["forms"], saved["rules"]
    columns = {name: as_first_read(table[name], forms[name], decimal) for name in saved["columns"]}
    return valid_values(typed_table(pd.DataFrame(columns, index=table.index), rules), rules)[saved["columns"]]
'''

RULES = r'''
def form_of(values):
    """What a column was when the table was read."""
    return "truth" if is_truth(values) else "number" if is_number(values) else "text"


def kind_of(values):
    """What a typed column holds."""
    if pd.api.types.is_bool_dtype(values):
        return "boolean"
    if pd.api.types.is_numeric_dtype(values):
        return "numeric"
    return "datetime" if pd.api.types.is_datetime64_any_dtype(values) else "categorical"


def rules_seen(columns):
    """Rules found by comparing the table as it was read with the typed one, where none were kept."""
    rules = {"kinds": {name: kind_of(df_typed[name]) for name in columns}, "numbers": {}, "dates": {}}
    rules["sentinels"], rules["spelling"] = {}, {}
    for name, kind in rules["kinds"].items():
        first, typed = raw_dataset.loc[df_typed.index, name], df_typed[name]
        texts = first.dropna().astype(str)
        if kind == "numeric" and form_of(first) == "text":
            rules["numbers"][name] = number_rule(texts, share=0.5) or {"decimal": ".", "scale": {}}
        elif kind == "datetime" and form_of(first) == "text":
            rules["dates"][name] = date_rule(texts, share=0.5) or {"format": "mixed", "day_first": False}
        elif kind == "categorical":
            used = typed[texts.index].dropna().astype(str)
            pairs = dict(zip(texts[used.index].map(spelling_key), used))
            rules["spelling"][name] = pairs if len(pairs) <= 5000 else {}
        if kind == "numeric" and form_of(first) == "number":
            lost = first[first.notna() & typed.isna()]
            rules["sentinels"][name] = sorted(set(lost[np.isfinite(lost)].astype(float)))[:20]
    return rules


def known_values(X):
    """The range of each column of numbers, and the levels of each category, among the rows learned from."""
    kinds, ranges, levels = columns_by_kind(X), {}, {}
    for name in kinds["numbers"]:
        present = X[name].dropna()
        if len(present) and not pd.api.types.is_bool_dtype(X[name]):
            ranges[name] = [float(present.min()), float(present.max())]
    for name in kinds["categories"]:
        present = sorted(X[name].dropna().astype(str).unique())
        if len(present) <= 5000:
            levels[name] = present
    return {"ranges": ranges, "levels": levels}


def typing_to_save():
    """How the columns of the features were read and typed, and what they held."""
    columns = list(X_train.columns)
    kept = processing_pipeline_doc.get("rules", {}) if isinstance(processing_pipeline_doc, dict) else {}
    rules = kept if set(columns) <= set(kept.get("kinds", {})) else rules_seen(columns)
    return {
        "target": target_column,
        "columns": columns,
        "forms": {name: form_of(raw_dataset[name]) for name in columns},
        "known": known_values(X_train.loc[final_rows]),
        "rules": {
            part: {name: rule for name, rule in entries.items() if name in columns}
            for part, entries in rules.items()
        },
    }


def typing_agreement(saved):
    """By column, the share of rows whose value comes out the same when it is read as text and typed again."""
    some = df_typed.index[:: max(1, len(df_typed) // 5000)]
    written = raw_dataset.loc[some, saved["columns"]].astype(object)
    for name, form in saved["forms"].items():
        if form == "number":  # as a file has it: whole numbers without a point
            present = written[name].dropna()
            written[name] = present.map(
                lambda value: str(int(value)) if float(value).is_integer() else repr(float(value))
            ).reindex(some)
        elif form == "truth":
            written[name] = written[name].dropna().astype(str).reindex(some)
    again, typed = typed_again(written, saved), df_typed.loc[some]
    shares = {}
    for name in saved["columns"]:
        if pd.api.types.is_numeric_dtype(typed[name]):
            same = np.isclose(again[name].astype(float), typed[name].astype(float), rtol=1e-9, equal_nan=True)
        else:
            same = (again[name] == typed[name]) | (again[name].isna() & typed[name].isna())
        shares[name] = float(np.mean(same))
    return shares
'''
