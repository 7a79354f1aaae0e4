"""The recipes of stage 3's second half: what the charts and figures say, in sentences."""

from __future__ import annotations

from detent.flows.notebook.domain.metric_names import metric_name
from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.methodology import baseline_answer, primary_metric
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

# -- insight_extraction -------------------------------------------------------------------------------------


def insight_extraction(kitchen: Kitchen) -> Recipe:
    """Say what was found, each finding with its figure."""
    categories = "set(column_groups(df_cleaned)['categorical'])"
    again = f"{{name: relation(df_cleaned, name, {categories}) for name in features}}"
    slots = {
        "STRENGTH": attempted(kitchen, "dict(relation_strength)", again),
        "PAIRS": attempted(kitchen, "close_pairs(correlation_matrix)", "[]"),
        "COLUMNS": attempted(kitchen, "column_insights(distribution_analysis)", "[]"),
    }
    return Recipe(
        lead="What have the tables and charts shown? Each finding is a sentence with the figure it rests on.",
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_INSIGHTS, slots)),
        result=_INSIGHTS_RESULT,
    )


_INSIGHTS = r'''
def close_pairs(matrix, limit=0.9):
    """Pairs of features that say nearly the same, the closest first."""
    values = np.triu(matrix.abs().to_numpy(), k=1)
    names = list(matrix.columns)
    pairs = [
        (names[row], names[column], float(values[row, column]))
        for row, column in zip(*np.where(values > limit))
    ]
    return sorted(
        (pair for pair in pairs if target_column not in pair[:2]), key=lambda pair: -pair[2]
    )


def target_insights(values):
    """What the target looks like."""
    if task_type == "regression":
        skew = float(values.skew())
        shape = (
            "skewed to the right"
            if skew > 1
            else "skewed to the left"
            if skew < -1
            else "fairly symmetric"
        )
        middle = f"around a median of {values.median():,.6g}"
        text = f"{code_name(target_column)} is {shape} (skew {skew:.2f}) {middle}"
        return [
            text
            + ("; its logarithm may be easier to model." if skew > 1 and values.min() >= 0 else ".")
        ]
    shares = values.value_counts(normalize=True)
    text = (
        f"{code_name(target_column)} has {len(shares)} classes; the largest holds {shares.max():.1%} "
        "of the rows and "
        f"the smallest, {code_name(shares.index[-1])}, {shares.min():.1%}"
    )
    return [
        text
        + (": always answering the largest would look accurate." if shares.min() < 0.2 else ".")
    ]


def relation_insights(strength):
    """Which features go with the target, and which suspiciously well."""
    ranked = sorted(strength, key=lambda name: -strength[name])
    if not ranked:
        return ["There is no feature whose relation with the target could be measured."]
    best = ", ".join(f"{code_name(name)} ({strength[name]:.2f})" for name in ranked[:3])
    found = [f"Most closely related to {code_name(target_column)}: {best}, on a scale from 0 to 1."]
    if strength[ranked[0]] < 0.3:
        found.append(
            f"No feature is strongly related to the target alone; the best reaches {strength[ranked[0]]:.2f}."
        )
    suspects = [name for name in ranked if strength[name] > 0.99]
    if suspects:
        found.append(
            f"Suspiciously close to the target, perhaps made from it: {listing(suspects)}."
        )
    return found


def gap_insights(table):
    """Where values are missing, and whether gaps themselves say something."""
    shares = table.isna().mean().sort_values(ascending=False, kind="stable")
    shares = shares[shares > 0]
    if shares.empty:
        return [f"None of the {table.size:,} cells is missing."]
    worst = ", ".join(f"{code_name(name)} ({share:.1%})" for name, share in shares.head(3).items())
    return [
        f"{len(shares):,} of {table.shape[1]:,} columns with missing values, most of all {worst}."
    ]


def column_insights(descriptions):
    """Skewed, rarely varied and many-levelled columns."""
    found = []
    features = {name: figures for name, figures in descriptions.items() if name != target_column}
    skewed = [name for name, figures in features.items() if abs(figures.get("skew", 0)) > 2]
    if skewed:
        worst = max(skewed, key=lambda name: abs(features[name]["skew"]))
        found.append(
            f"{counted(len(skewed), 'numeric feature')} strongly skewed, most of all {code_name(worst)} "
            f"(skew {features[worst]['skew']:.1f})."
        )
    remote = [name for name, figures in features.items() if figures.get("outlier_share", 0) > 0.05]
    if remote:
        found.append(f"More than 5% of the values are outliers in {listing(remote, 4)}.")
    many = [
        name
        for name, figures in features.items()
        if figures["kind"] == "categorical" and figures["distinct"] > 30
    ]
    if many:
        found.append(
            f"These categories have more than 30 levels, so rare ones have to be grouped: {listing(many, 4)}."
        )
    return found


features = [name for name in df_cleaned.columns if name != target_column]
strength = <<STRENGTH>>
pairs = <<PAIRS>>
eda_insights = [
    *target_insights(df_typed[target_column]),
    *relation_insights(strength),
    *gap_insights(df_typed),
    *(
        [
            f"{counted(len(pairs), 'pair')} of features with nearly the same to say, such as "
            f"{code_name(pairs[0][0])} "
            f"and {code_name(pairs[0][1])} ({pairs[0][2]:.2f})."
        ]
        if pairs
        else [
            "No two of the compared features say nearly the same; all relations among them are below 0.90."
        ]
    ),
    *<<COLUMNS>>,
]
for number, insight in enumerate(eda_insights, 1):
    print(f"{number}. {insight}")
'''

_INSIGHTS_RESULT = r"""
"\n".join(f"- {insight}" for insight in eda_insights)
"""


# -- eda_consolidation --------------------------------------------------------------------------------------


def eda_consolidation(kitchen: Kitchen) -> Recipe:
    """Sum the exploration up, and say what follows for the model."""
    slots = {
        "STRENGTH": attempted(kitchen, "dict(relation_strength)", "{}"),
        "PAIRS": attempted(kitchen, "len(close_pairs(correlation_matrix))", "0"),
        "MORE": _MORE_CHARTS if kitchen.iteration > 1 else "",
        "JUDGE": literal(_judging(kitchen)),
        "USABLE": attempted(kitchen, 'set(relevance_report["usable_features"])', "set(df_cleaned.columns)"),
    }
    return Recipe(
        lead=(
            "What follows for the model? Each recommendation rests on a figure above, and is written "
            "down before any score is known, so that none of them is chosen because it happens to score "
            "well. The figures describe all rows; what depends on the target's values is decided later, "
            "by the training rows alone."
        ),
        code=cell(ATTEMPT if kitchen.iteration > 1 else "", fill(_CONSOLIDATION, slots)),
        result=_CONSOLIDATION_RESULT,
    )


def _judging(kitchen: Kitchen) -> str:
    """The advice how to judge models: as the problem asks, else as the evaluation will."""
    reading = kitchen.problem
    metric = primary_metric(reading)
    baseline = baseline_answer(reading.task, metric).replace("_", " ")
    others = [name for name in dict.fromkeys(limit.metric for limit in reading.thresholds) if name != metric]
    asked = ", as the problem asks" if reading.thresholds else ""
    beside = f" (beside it {', '.join(map(metric_name, others))})" if others else ""
    return f"Judge by {metric_name(metric)}{asked}{beside}, and beat always answering the {baseline}."


_MORE_CHARTS = r"""
# Fewer than six charts were drawn so far: one more for each of the first columns.
for number, name in enumerate([target_column, *features] * 6, 1):
    if len(list(Path("outputs/eda").glob("*.png"))) >= 6:
        break
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    values = df_cleaned[name]
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        axis.hist(
            values,
            bins=10 + 5 * (number // (len(features) + 1)),
            color="#2f6db3",
            edgecolor="white",
        )
    else:
        values.astype(str).value_counts().sort_index().tail(12).plot.bar(ax=axis, color="#2f6db3")
    axis.set(title=f"Rows by {label(name, 40)}", xlabel=label(name, 30), ylabel="rows")
    save_chart(figure, f"outputs/eda/2{number:02d}_rows.png", f"Rows by {name}")
"""

_CONSOLIDATION = r'''
def recommendations():
    """What the findings mean for the model, each with its figure."""
    target = df_typed[target_column]
    usable = <<USABLE>>  # what is left out is no feature to advise on
    kinds = column_groups(df_cleaned[[name for name in features if name in usable]])
    advice = []
    if task_type == "regression":
        skew = float(target.skew())
        if skew > 1 and target.min() >= 0:
            advice.append(f"Model the logarithm of the target if the training rows are as skewed as all rows "
                f"({skew:.2f}).")
    else:
        smallest = float(target.value_counts(normalize=True).min())
        if smallest < 0.2:
            advice.append(f"Weight the classes if the training rows are as uneven as all rows, of which the "
                f"smallest class holds {smallest:.1%}.")
    advice.append(<<JUDGE>>)
    gaps = int(df_typed[[name for name in df_typed.columns if name in usable]].isna().sum().sum())
    if gaps:
        advice.append(
            f"Fill the {gaps:,} missing cells inside the model's pipeline, from training rows only."
        )
    rare = [name for name in kinds["categorical"] if df_cleaned[name].nunique() > 30]
    if rare:
        advice.append(
            f"Group the rare levels of {listing(rare, 4)}; they have more than 30 levels."
        )
    if kinds["datetime"]:
        advice.append(f"Split dates into year, month and weekday: {listing(kinds['datetime'], 4)}.")
    if kinds["text"]:
        advice.append(f"Turn prose into weighted terms (TF-IDF): {listing(kinds['text'], 4)}.")
    pairs = <<PAIRS>>
    if pairs:
        advice.append(
            f"Regularise linear models: {counted(pairs, 'pair')} of features with nearly the same to say."
        )
    suspects = [name for name, value in strength.items() if value > 0.99 and name in usable]
    if suspects:
        advice.append(
            f"Check for leaks before training: {listing(suspects, 4)} follow the target almost exactly."
        )
    if len(df_typed) < 100:
        advice.append(f"Prefer simple models and few folds: there are only {len(df_typed):,} rows.")
    if len(usable) > 500:
        advice.append(
            f"Filter features inside the pipeline: there are {len(usable):,} of them."
        )
    advice.append(
        "Compare a linear model with tree ensembles, so that curved relations and interactions get a chance."
    )
    return advice


features = [name for name in df_cleaned.columns if name != target_column]
strength = <<STRENGTH>>
<<MORE>>
modeling_recommendations = recommendations()
eda_charts = sorted(path.as_posix() for path in Path("outputs/eda").glob("*.png"))
eda_summary = "\n".join(
    [
        f"# Exploration of {len(df_typed):,} rows and {df_typed.shape[1]:,} columns",
        "",
        "## Findings",
        *(f"- {insight}" for insight in eda_insights),
        "",
        "## What follows",
        *(f"- {advice}" for advice in modeling_recommendations),
        "",
        f"Charts: {len(eda_charts)}, in outputs/eda.",
    ]
)
print(eda_summary)
'''

_CONSOLIDATION_RESULT = r"""
(
    f"{len(eda_insights)} findings and {len(eda_charts)} charts lead to {len(modeling_recommendations)} "
    f"{'recommendation' if len(modeling_recommendations) == 1 else 'recommendations'}:\n\n"
    + "\n".join(f"- {advice}" for advice in modeling_recommendations)
)
"""
