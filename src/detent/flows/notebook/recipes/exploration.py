"""The recipes of stage 3's first half: charts of single columns, and of columns against each other."""

from __future__ import annotations

from detent.flows.notebook.recipes.chart_code import CHARTS, RELATIONS
from detent.flows.notebook.recipes.code_text import cell, fill, literal
from detent.flows.notebook.recipes.eda_charts import COLUMN_CHARTS, RELATION_CHARTS
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted

_FEATURES = '[name for name in relevance_report["usable_features"] if name in df_cleaned.columns]'
_ALL_FEATURES = "[name for name in df_cleaned.columns if name != target_column]"

# -- current_state_assessment -------------------------------------------------------------------------------


def current_state_assessment(kitchen: Kitchen) -> Recipe:
    """Describe each column, and draw the target, the gaps and the distributions."""
    slots = {
        "FEATURES": attempted(kitchen, _FEATURES, _ALL_FEATURES),
        "SAMPLE": literal({1: 50_000, 2: 10_000}.get(kitchen.iteration, 2_000)),
        "PANELS": literal({1: 12, 2: 9}.get(kitchen.iteration, 4)),
    }
    return Recipe(
        lead=(
            "What does each column look like on its own? The figures describe all rows; gaps count as "
            "gaps here, since filling them would put a peak into every histogram. Of large tables the "
            "charts show a sample drawn with the seed. They are saved under `outputs/eda/`."
        ),
        code=cell(CHARTS, COLUMN_CHARTS, ATTEMPT if kitchen.iteration > 1 else "", fill(_STATE, slots)),
        result=_STATE_RESULT,
    )


_STATE = r"""
analysed_features = <<FEATURES>>
analysed = [*analysed_features, target_column]
distribution_analysis = {
    name: description_of(df_typed[name]) for name in analysed if name in df_typed.columns
}
kinds = column_groups(df_cleaned[analysed_features])
looked_at = (
    df_typed
    if len(df_typed) <= <<SAMPLE>>
    else df_typed.sample(<<SAMPLE>>, random_state=RANDOM_STATE)
)

save_chart(
    draw_target(looked_at[target_column]),
    "outputs/eda/01_target.png",
    f"Distribution of {target_column}",
)
save_chart(
    draw_missing(df_typed[list(distribution_analysis)]),
    "outputs/eda/02_completeness.png",
    "Missing values by column",
)
measured, told = kinds["numeric"] + kinds["datetime"] + kinds["text"], kinds["categorical"]
if len(measured) >= 2 or not told:
    save_chart(
        draw_histograms(looked_at, measured[:<<PANELS>>]),
        "outputs/eda/03_distributions.png",
        "Distributions of columns on a scale",
    )
    if told:
        save_chart(
            draw_counts(looked_at, told[:<<PANELS>>]),
            "outputs/eda/04_categories.png",
            "Most frequent levels of categories",
        )
else:
    save_chart(
        draw_counts(looked_at, told[:<<PANELS>>]),
        "outputs/eda/03_distributions.png",
        "Most frequent levels of categories",
    )
if len(looked_at) < len(df_typed):
    print(f"The charts show a sample of {len(looked_at):,} of {len(df_typed):,} rows.")
pd.DataFrame.from_dict(distribution_analysis, orient="index")
"""

_STATE_RESULT = r"""
(
    (
        f"{code_name(target_column)} runs from {distribution_analysis[target_column]['min']:,.6g} to "
        f"{distribution_analysis[target_column]['max']:,.6g} with a median of "
        f"{distribution_analysis[target_column]['median']:,.6g} and a skew of "
        f"{distribution_analysis[target_column]['skew']:.2f}. "
        if distribution_analysis[target_column]["kind"] == "numeric" and task_type == "regression"
        else f"{code_name(target_column)} has {df_typed[target_column].nunique():,} classes; the "
        "largest holds "
        f"{df_typed[target_column].value_counts(normalize=True).max():.1%} of the rows, the smallest "
        f"{df_typed[target_column].value_counts(normalize=True).min():.2%}. "
    )
    + f"Of {len(analysed_features):,} features, {len(kinds['numeric']):,} are numeric, "
    f"{len(kinds['categorical']):,} "
    f"categorical, {counted(len(kinds['datetime']), 'date')} and {len(kinds['text']):,} free text. "
    + (
        "Skewed by more than 2: "
        + listing(name for name in kinds["numeric"] if abs(distribution_analysis[name]["skew"]) > 2)
        + "."
        if any(abs(distribution_analysis[name]["skew"]) > 2 for name in kinds["numeric"])
        else "No numeric feature is skewed by more than 2."
    )
)
"""


# -- targeted_inquiry ---------------------------------------------------------------------------------------


def targeted_inquiry(kitchen: Kitchen) -> Recipe:
    """Relate the columns to each other and to the target."""
    slots = {
        "FEATURES": attempted(kitchen, _FEATURES, _ALL_FEATURES),
        "SAMPLE": literal({1: 30_000, 2: 10_000}.get(kitchen.iteration, 2_000)),
        "STRENGTH": attempted(kitchen, "relation(inquired, name, categories)", "0.0"),
    }
    return Recipe(
        lead=(
            "What goes together? Relations are measured by ranks, so that a few extreme values cannot "
            "make or hide one: Spearman's correlation between numbers, Cramér's V between categories, "
            "and the share of ranks that categories explain. All are on a scale from 0 to 1, so that "
            "columns of every kind can be compared. A relation is no cause, and a nearly perfect one is "
            "a reason for suspicion."
        ),
        code=cell(
            RELATIONS, RELATION_CHARTS, ATTEMPT if kitchen.iteration > 1 else "", fill(_INQUIRY, slots)
        ),
        result=_INQUIRY_RESULT,
    )


_INQUIRY = r"""
features = <<FEATURES>>
kinds = column_groups(df_cleaned[features])
categories = set(kinds["categorical"])
inquired = sampled(df_cleaned[[*features, target_column]], <<SAMPLE>>)
strengths = {name: <<STRENGTH>> for name in features}
relation_strength = dict(sorted(strengths.items(), key=lambda pair: -pair[1]))
strongest = list(relation_strength)

# Above 200 columns, the ones closest to the target say enough.
correlation_matrix, correlation_measure = matrix_of(
    inquired, [target_column, *strongest[:200]], categories
)
drawn = correlation_matrix.iloc[:20, :20]
save_chart(
    draw_matrix(drawn, correlation_measure),
    "outputs/eda/05_correlation.png",
    f"{correlation_measure} between columns, those closest to {target_column} first",
)

figure, (axis,) = panels(1, width=7.5, height=0.3 * min(len(strongest), 20) + 1.4)
bars(axis, strongest[:20], list(relation_strength.values())[:20], lambda value: f"{value:.2f}")
axis.set(
    title=f"Relation with {label(target_column, 30)}",
    xlabel="strength, 0 to 1",
    ylabel="feature",
    xlim=(0, 1.08),
)
save_chart(
    figure,
    "outputs/eda/06_relations.png",
    f"How closely each feature is related to {target_column}",
)

figure, axes = panels(min(6, len(strongest)))
few = sampled(inquired, 2_000)
for axis, name in zip(axes, strongest):
    draw_against_target(axis, few, name, categories)
    axis.set_title(f"strength {relation_strength[name]:.2f}", fontsize=9, fontweight="normal")
figure.suptitle(f"Closest features against {label(target_column, 30)}")
save_chart(
    figure,
    "outputs/eda/07_features_against_target.png",
    f"The closest features against {target_column}",
)

described = [
    name for name in kinds["numeric"] if "outlier_share" in distribution_analysis.get(name, {})
]
rare = [
    name for name in kinds["categorical"] if "rare_share" in distribution_analysis.get(name, {})
]
if described:
    save_chart(
        draw_outliers(described),
        "outputs/eda/08_outliers.png",
        "Spread and outliers of numeric columns",
    )
elif rare:
    save_chart(
        draw_rare_levels(rare),
        "outputs/eda/08_rare_levels.png",
        "Levels of categories, and rows with a rare one",
    )
for date in kinds["datetime"][:1]:
    save_chart(
        draw_over_time(inquired, date),
        "outputs/eda/09_over_time.png",
        f"{target_column} over time, by {date}",
    )
if len(inquired) < len(df_cleaned):
    print(f"Relations are measured on a sample of {len(inquired):,} of {len(df_cleaned):,} rows.")
for name, strength in list(relation_strength.items())[:10]:
    print(f"{strength:6.3f}  {name!r}")
"""

_INQUIRY_RESULT = r"""
(
    f"Closest to {code_name(target_column)} are "
    + ", ".join(
        f"{code_name(name)} ({strength:.2f})"
        for name, strength in list(relation_strength.items())[:5]
    )
    + ". "
    + (
        f"{code_name(strongest[0])} almost gives the target away; whether it would be known in time, "
        "and is no copy of "
        "the target, is checked before a model is trained. "
        if relation_strength[strongest[0]] > 0.99
        else "No feature is closely related to it on its own, so a model has to combine many of them. "
        if relation_strength[strongest[0]] < 0.3
        else ""
    )
    + f"{sum(strength < 0.05 for strength in relation_strength.values()):,} of "
    f"{len(relation_strength):,} features are "
    "hardly related to it at all (below 0.05)."
)
"""
