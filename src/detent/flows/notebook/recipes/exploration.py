"""The recipes of stage 3's first half: charts of single columns, and of columns against each other."""

from __future__ import annotations

from detent.flows.notebook.recipes.chart_code import CHARTS, RELATIONS
from detent.flows.notebook.recipes.code_text import cell, fill, literal
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
        lead="What does each column look like on its own? The figures describe all rows; gaps count as gaps "
        "here, since filling them would put a peak into every histogram. Of large tables the charts show a sample "
        "drawn with the seed. They are saved under `outputs/eda/`.",
        code=cell(CHARTS, ATTEMPT if kitchen.iteration > 1 else "", fill(_STATE, slots)),
        result=_STATE_RESULT,
    )


_STATE = r'''
def description_of(values):
    """The figures that describe a column."""
    present = values.dropna()
    figures = {"missing": int(values.isna().sum()), "distinct": int(present.nunique())}
    if pd.api.types.is_datetime64_any_dtype(values):
        return {"kind": "datetime", **figures, "first": str(present.min()), "last": str(present.max())}
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        low, middle, high = (float(value) for value in present.quantile([0.25, 0.5, 0.75]))
        reach = 1.5 * (high - low)
        outside = (present < low - reach) | (present > high + reach)
        return {
            "kind": "numeric", **figures,
            "mean": float(present.mean()), "sd": float(present.std()) if len(present) > 1 else 0.0,
            "min": float(present.min()), "q25": low, "median": middle, "q75": high, "max": float(present.max()),
            "skew": float(present.skew()) if len(present) > 2 and high > low else 0.0,
            "outlier_share": float(outside.mean()) if high > low else 0.0,
        }
    shares = present.astype(str).value_counts(normalize=True)
    most = min(shares.index[shares == shares.max()])
    return {
        "kind": "categorical", **figures, "most_frequent": most, "share": float(shares.max()),
        "rare_levels": int((shares < 0.01).sum()), "rare_share": float(shares[shares < 0.01].sum()),
    }


def draw_target(values):
    """The target: a histogram, with its logarithm where it is skewed, or the classes with their counts."""
    if task_type == "classification":
        counts = often(values)
        figure, (axis,) = panels(1, width=7.5, height=0.36 * min(len(counts), 20) + 1.3)
        bars(axis, counts.index[:20], counts.to_numpy()[:20], lambda n: f"{n:,.0f} ({n / len(values):.1%})")
        axis.set(title=f"Classes of {label(target_column, 40)}", xlabel="rows", ylabel=label(target_column, 30))
        return figure
    skewed = distribution_analysis[target_column]["skew"] > 1 and values.min() > 0
    figure, axes = panels(2 if skewed else 1, across=2, width=4.6 if skewed else 7.5, height=3.8)
    for axis, shown in zip(axes, (values, np.log10(values)) if skewed else (values,)):
        logarithm = "log10 of " if axis is not axes[0] else ""
        axis.hist(shown, bins=40, color=BLUE, edgecolor="white", linewidth=0.4)
        axis.axvline(shown.median(), color=ORANGE, label=f"median {shown.median():,.4g}")
        axis.set(xlabel=logarithm + label(target_column, 40), ylabel="rows")
        axis.legend()
    figure.suptitle(f"Distribution of {label(target_column, 50)}")
    return figure


def draw_missing(table):
    """The share of missing values; where nothing is missing, the number of distinct values instead."""
    shares = table.isna().mean().sort_values(ascending=False, kind="stable")
    shares = shares[shares > 0].head(25)
    counts = table.nunique().sort_values(ascending=False, kind="stable").head(25)
    figure, (axis,) = panels(1, width=7.5, height=0.3 * len(shares if len(shares) else counts) + 1.4)
    if len(shares):
        bars(axis, shares.index, shares.to_numpy() * 100, lambda share: f"{share:.1f} %", ORANGE)
        axis.set(title="Columns with missing values", xlabel="missing, % of rows", ylabel="column")
        return figure
    bars(axis, counts.index, counts.to_numpy(), lambda n: f"{n:,.0f}", GREY)
    axis.set(title="No value is missing: distinct values per column", xlabel="distinct values", ylabel="column")
    if counts.max() > 50 * counts.min():
        axis.set_xscale("log")
    return figure


def draw_histograms(table, names):
    """A histogram for each numeric or date column."""
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names):
        values = table[name].dropna()
        if pd.api.types.is_numeric_dtype(values) and values.nunique() <= 12:
            counts = values.value_counts().sort_index()
            axis.bar([f"{value:g}" for value in counts.index], counts, color=BLUE, width=0.7)
            axis.grid(axis="x", visible=False)
        else:
            axis.hist(values, bins=30, color=BLUE, edgecolor="white", linewidth=0.3)
        axis.set(xlabel=label(name, 30), ylabel="rows")
        axis.locator_params(axis="y", nbins=5)
        few_ticks(axis, values)
    figure.suptitle("Distributions of numeric columns")
    return figure


def draw_counts(table, names):
    """The most frequent levels of each category."""
    figure, axes = panels(len(names), height=3.2)
    for axis, name in zip(axes, names):
        counts = often(table[name])[:8]
        axis.barh(range(len(counts)), counts.to_numpy(), color=BLUE, height=0.7)
        axis.set_yticks(range(len(counts)), [label(level, 16) for level in counts.index], fontsize=8)
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set(xlabel="rows", ylabel=label(name, 30))
    figure.suptitle("Most frequent levels of categories")
    return figure


analysed_features = <<FEATURES>>
analysed = [*analysed_features, target_column]
distribution_analysis = {name: description_of(df_typed[name]) for name in analysed if name in df_typed.columns}
kinds = column_groups(df_cleaned[analysed_features])
looked_at = df_typed if len(df_typed) <= <<SAMPLE>> else df_typed.sample(<<SAMPLE>>, random_state=RANDOM_STATE)

save_chart(draw_target(looked_at[target_column]), "outputs/eda/01_target.png", f"Distribution of {target_column}")
save_chart(draw_missing(df_typed[list(distribution_analysis)]), "outputs/eda/02_completeness.png", "Missing values by column")
measured, told = kinds["numeric"] + kinds["datetime"], kinds["categorical"]
if len(measured) >= 2 or not told:
    shown = (measured or analysed_features)[:<<PANELS>>]
    lengths = looked_at[shown].map(lambda text: len(str(text).split()))
    save_chart(draw_histograms(looked_at if measured else lengths, shown), "outputs/eda/03_distributions.png", "Distributions of numeric columns")
    if told:
        save_chart(draw_counts(looked_at, told[:<<PANELS>>]), "outputs/eda/04_categories.png", "Most frequent levels of categories")
else:
    save_chart(draw_counts(looked_at, told[:<<PANELS>>]), "outputs/eda/03_distributions.png", "Most frequent levels of categories")
if len(looked_at) < len(df_typed):
    print(f"The charts show a sample of {len(looked_at):,} of {len(df_typed):,} rows.")
pd.DataFrame.from_dict(distribution_analysis, orient="index")
'''

_STATE_RESULT = r"""
(
    (
        f"{code_name(target_column)} runs from {distribution_analysis[target_column]['min']:,.6g} to "
        f"{distribution_analysis[target_column]['max']:,.6g} with a median of "
        f"{distribution_analysis[target_column]['median']:,.6g} and a skew of "
        f"{distribution_analysis[target_column]['skew']:.2f}. "
        if distribution_analysis[target_column]["kind"] == "numeric" and task_type == "regression" else
        f"{code_name(target_column)} has {df_typed[target_column].nunique():,} classes; the largest holds "
        f"{df_typed[target_column].value_counts(normalize=True).max():.1%} of the rows, the smallest "
        f"{df_typed[target_column].value_counts(normalize=True).min():.2%}. "
    )
    + f"Of {len(analysed_features):,} features, {len(kinds['numeric']):,} are numeric, {len(kinds['categorical']):,} "
    f"categorical, {len(kinds['datetime']):,} dates and {len(kinds['text']):,} free text. "
    + (
        "Skewed by more than 2: "
        + listing(name for name in kinds["numeric"] if abs(distribution_analysis[name]["skew"]) > 2) + "."
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
        lead="What goes together? Relations are measured by ranks, so that a few extreme values cannot make or hide "
        "one: Spearman's correlation between numbers, Cramér's V between categories, and the share of ranks that "
        "categories explain. All are on a scale from 0 to 1, so that columns of every kind can be compared. A "
        "relation is no cause, and a nearly perfect one is a reason for suspicion.",
        code=cell(RELATIONS, ATTEMPT if kitchen.iteration > 1 else "", fill(_INQUIRY, slots)),
        result=_INQUIRY_RESULT,
    )


_INQUIRY = r'''
def fifths(values):
    """Numbers as five groups of equal size."""
    return np.ceil(5 * values.rank(pct=True))


def matrix_of(table, names, categories):
    """Rank correlations of numeric columns; Cramér's V where fewer than two columns are numeric."""
    scales = [name for name in names if name != target_column or task_type == "regression"]
    numbers = [name for name in scales if name not in categories and pd.api.types.is_numeric_dtype(table[name])]
    if len(numbers) >= 2:
        ranks = table[numbers].rank().to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):  # a column that does not vary relates to nothing
            values = np.nan_to_num(np.corrcoef(ranks, rowvar=False))
        np.fill_diagonal(values, 1.0)
        return pd.DataFrame(values, index=numbers, columns=numbers), "Rank correlation"
    names, levels = names[:15], {}
    for name in names:
        told = name in categories or (name == target_column and task_type == "classification")
        levels[name] = table[name] if told else fifths(as_numbers(table[name]))
    values = [[1.0 if left == right else cramers_v(levels[left], levels[right]) for right in names] for left in names]
    return pd.DataFrame(values, index=names, columns=names), "Cramér's V"


def draw_matrix(matrix, measure):
    """A heat map with the values written in, as long as they can be read."""
    size = len(matrix)
    figure, (axis,) = panels(1, width=max(6.5, 0.42 * size + 3), height=max(4.2, 0.38 * size + 2))
    low = -1 if measure == "Rank correlation" else 0
    image = axis.imshow(matrix, cmap="RdBu_r" if low else "Blues", vmin=low, vmax=1, aspect="auto")
    names = [label(name, 18) for name in matrix.columns]
    axis.set_xticks(range(size), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    axis.set_yticks(range(size), names, fontsize=8)
    axis.grid(visible=False)
    for row, column in ((row, column) for row in range(size) for column in range(size) if size <= 16):
        value = matrix.iat[row, column]
        axis.text(
            column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color="white" if abs(value) > 0.6 else "black"
        )
    axis.set(title=f"{measure} between columns", xlabel="column", ylabel="column")
    figure.colorbar(image, ax=axis, label=measure, shrink=0.8)
    return figure


def draw_against_target(axis, table, name, categories):
    """One feature against the target."""
    target = table[target_column]
    unit = " (days)" if pd.api.types.is_datetime64_any_dtype(table[name]) else ""
    if task_type == "regression" and name not in categories:
        values = as_numbers(table[name])
        axis.scatter(values, target, s=9, alpha=0.35, color=BLUE, linewidths=0)
        tenth = np.ceil(10 * values.rank(pct=True))
        axis.plot(
            values.groupby(tenth).median(), target.groupby(tenth).median(),
            color=ORANGE, marker="o", markersize=3.5, label="median of each tenth",
        )
        axis.legend(fontsize=7)
        axis.set(xlabel=label(name, 30) + unit, ylabel=label(target_column))
        few_ticks(axis, values)
        return
    # Otherwise one side has levels: numbers are shown as boxes, shares as stacked bars.
    sides = (name, target_column) if name in categories else (target_column, name)
    levels = table[sides[0]].astype(str)
    common = often(levels).index[:8]
    if task_type == "classification" and name in categories:
        shares = pd.crosstab(levels[levels.isin(common)], target.astype(str), normalize="index").loc[list(common)]
        shown = shares.sum().sort_values(ascending=False, kind="stable").index[:7]
        left = np.zeros(len(shares))
        for colour, group in zip(CLASS_COLOURS, shown):
            axis.barh(range(len(shares)), shares[group], left=left, color=colour, height=0.75, label=label(group, 14))
            left += shares[group].to_numpy()
        axis.set_yticks(range(len(shares)), [label(level, 14) for level in shares.index], fontsize=8)
        axis.invert_yaxis()
        axis.legend(fontsize=7, ncols=2, title=label(target_column, 18), title_fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.2))
        axis.set(xlabel="share of rows", ylabel=label(name), xlim=(0, 1))
        return
    values = as_numbers(table[sides[1]])
    groups = {level: values[levels == level] for level in common}
    if name in categories:  # classes keep one order in all panels
        groups = dict(sorted(groups.items(), key=lambda pair: pair[1].median()))
    boxes(axis, list(groups.values()), list(groups))
    axis.set(xlabel=label(sides[1], 30) + unit, ylabel=label(sides[0]))
    few_ticks(axis, values)


def draw_outliers(names):
    """How the numeric columns spread, and the share of values far outside their middle half."""
    shares = pd.Series({name: 100 * distribution_analysis[name]["outlier_share"] for name in names})
    shares = shares.sort_values(ascending=False, kind="stable").head(15)
    figure, (left, right) = panels(2, across=2, width=4.9, height=0.3 * len(shares) + 1.8)
    spread = []
    for name in shares.index:
        figures = distribution_analysis[name]
        values = inquired[name].astype(float)
        spread.append((values - figures["median"]) / ((figures["q75"] - figures["q25"]) or values.std() or 1.0))
    boxes(left, spread, list(shares.index))
    if max(abs(values).max() for values in spread) > 15:
        left.set_xscale("symlog", linthresh=5)
    left.set(xlabel="distance from the median, in interquartile ranges", ylabel="column")
    bars(right, shares.index, shares.to_numpy(), lambda share: f"{share:.1f} %", ORANGE)
    right.set(xlabel="outliers, % of rows", xlim=(0, max(1.0, shares.max() * 1.2)))
    figure.suptitle("Outliers: values beyond 1.5 interquartile ranges")
    return figure


def draw_rare_levels(names):
    """The share of rows with a level that fewer than one row in a hundred has, and the number of levels."""
    shares = pd.Series({name: 100 * distribution_analysis[name].get("rare_share", 0.0) for name in names})
    shares = shares.sort_values(ascending=False, kind="stable").head(15)
    counts = [distribution_analysis[name]["distinct"] for name in shares.index]
    figure, (left, right) = panels(2, across=2, width=4.9, height=0.3 * len(shares) + 1.8)
    bars(left, shares.index, counts, lambda n: f"{n:,.0f}")
    left.set(xlabel="levels", ylabel="column")
    bars(right, shares.index, shares.to_numpy(), lambda share: f"{share:.1f} %", ORANGE)
    right.set(xlabel="rows with a rare level, %", xlim=(0, max(1.0, shares.max() * 1.2)))
    figure.suptitle("Levels of categories, and how many rows have a rare one")
    return figure


def draw_over_time(table, date):
    """The target over time: its median, or the share of each class."""
    days = table[date]
    span = (days.max() - days.min()).days
    period = next((unit for unit, most in (("D", 60), ("W", 420), ("M", 1800), ("Q", 7000)) if span <= most), "Y")
    when = days.dt.to_period(period).dt.start_time
    figure, (axis,) = panels(1, width=8.5, height=3.8)
    if task_type == "regression":
        middle = table[target_column].groupby(when).quantile([0.25, 0.5, 0.75]).unstack()
        axis.fill_between(middle.index, middle[0.25], middle[0.75], color="#c9dbef", label="middle half")
        axis.plot(middle.index, middle[0.5], color=BLUE, marker="o", markersize=3.5, label="median")
        axis.set(ylabel=label(target_column))
    else:
        shares = pd.crosstab(when, table[target_column].astype(str), normalize="index")
        for colour, group in zip(CLASS_COLOURS, shares.sum().sort_values(ascending=False, kind="stable").index):
            axis.plot(shares.index, shares[group], color=colour, marker="o", markersize=3.5, label=label(group))
        axis.set(ylabel="share of rows")
    axis.legend(fontsize=8)
    axis.set(title=f"{label(target_column, 30)} over time", xlabel=label(date))
    few_ticks(axis, days, 8)
    return figure


features = <<FEATURES>>
kinds = column_groups(df_cleaned[features])
categories = set(kinds["categorical"])
inquired = sampled(df_cleaned[[*features, target_column]], <<SAMPLE>>)
strengths = {name: <<STRENGTH>> for name in features}
relation_strength = dict(sorted(strengths.items(), key=lambda pair: -pair[1]))
strongest = list(relation_strength)

# Above 200 columns, the ones closest to the target say enough.
correlation_matrix, correlation_measure = matrix_of(inquired, [target_column, *strongest[:200]], categories)
drawn = correlation_matrix.iloc[:20, :20]
save_chart(
    draw_matrix(drawn, correlation_measure), "outputs/eda/05_correlation.png",
    f"{correlation_measure} between columns, those closest to {target_column} first",
)

figure, (axis,) = panels(1, width=7.5, height=0.3 * min(len(strongest), 20) + 1.4)
bars(axis, strongest[:20], list(relation_strength.values())[:20], lambda value: f"{value:.2f}")
axis.set(title=f"Relation with {label(target_column, 30)}", xlabel="strength, 0 to 1", ylabel="feature", xlim=(0, 1.08))
save_chart(figure, "outputs/eda/06_relations.png", f"How closely each feature is related to {target_column}")

figure, axes = panels(min(6, len(strongest)))
few = sampled(inquired, 2_000)
for axis, name in zip(axes, strongest):
    draw_against_target(axis, few, name, categories)
    axis.set_title(f"strength {relation_strength[name]:.2f}", fontsize=9, fontweight="normal")
figure.suptitle(f"Closest features against {label(target_column, 30)}")
save_chart(figure, "outputs/eda/07_features_against_target.png", f"The closest features against {target_column}")

described = [name for name in kinds["numeric"] if "outlier_share" in distribution_analysis.get(name, {})]
rare = [name for name in kinds["categorical"] if "rare_share" in distribution_analysis.get(name, {})]
if described:
    save_chart(draw_outliers(described), "outputs/eda/08_outliers.png", "Spread and outliers of numeric columns")
elif rare:
    save_chart(draw_rare_levels(rare), "outputs/eda/08_rare_levels.png", "Levels of categories, and rows with a rare one")
for date in kinds["datetime"][:1]:
    save_chart(draw_over_time(inquired, date), "outputs/eda/09_over_time.png", f"{target_column} over time, by {date}")
if len(inquired) < len(df_cleaned):
    print(f"Relations are measured on a sample of {len(inquired):,} of {len(df_cleaned):,} rows.")
for name, strength in list(relation_strength.items())[:10]:
    print(f"{strength:6.3f}  {name!r}")
'''

_INQUIRY_RESULT = r"""
(
    f"Closest to {code_name(target_column)} are "
    + ", ".join(f"{code_name(name)} ({strength:.2f})" for name, strength in list(relation_strength.items())[:5])
    + ". "
    + (
        f"{code_name(strongest[0])} almost gives the target away; whether it would be known in time, and is no copy of "
        "the target, is checked before a model is trained. "
        if relation_strength[strongest[0]] > 0.99 else
        "No feature is closely related to it on its own, so a model has to combine many of them. "
        if relation_strength[strongest[0]] < 0.3 else ""
    )
    + f"{sum(strength < 0.05 for strength in relation_strength.values()):,} of {len(relation_strength):,} features are "
    "hardly related to it at all (below 0.05)."
)
"""
