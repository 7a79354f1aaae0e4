"""Code of cells that draws the charts of the exploration."""

from __future__ import annotations

COLUMN_CHARTS = r'''
def description_of(values):
    """The figures that describe a column."""
    present = values.dropna()
    figures = {"missing": int(values.isna().sum()), "distinct": int(present.nunique())}
    if pd.api.types.is_datetime64_any_dtype(values):
        return {
            "kind": "datetime",
            **figures,
            "first": str(present.min()),
            "last": str(present.max()),
        }
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        low, middle, high = (float(value) for value in present.quantile([0.25, 0.5, 0.75]))
        reach = 1.5 * (high - low)
        outside = (present < low - reach) | (present > high + reach)
        return {
            "kind": "numeric",
            **figures,
            "mean": float(present.mean()),
            "sd": float(present.std()) if len(present) > 1 else 0.0,
            "min": float(present.min()),
            "q25": low,
            "median": middle,
            "q75": high,
            "max": float(present.max()),
            "skew": float(present.skew()) if len(present) > 2 and high > low else 0.0,
            "outlier_share": float(outside.mean()) if high > low else 0.0,
        }
    shares = present.astype(str).value_counts(normalize=True)
    most = min(shares.index[shares == shares.max()])
    return {
        "kind": "categorical",
        **figures,
        "most_frequent": most,
        "share": float(shares.max()),
        "rare_levels": int((shares < 0.01).sum()),
        "rare_share": float(shares[shares < 0.01].sum()),
    }


def draw_target(values):
    """The target: a histogram, with its logarithm where it is skewed, or the classes with their counts."""
    if task_type == "classification":
        counts = often(values)
        figure, (axis,) = panels(1, width=7.5, height=0.36 * min(len(counts), 20) + 1.3)
        bars(
            axis,
            counts.index[:20],
            counts.to_numpy()[:20],
            lambda n: f"{n:,.0f} ({n / len(values):.1%})",
        )
        axis.set(
            title=f"Classes of {label(target_column, 40)}",
            xlabel="rows",
            ylabel=label(target_column, 30),
        )
        return figure
    skewed = distribution_analysis[target_column]["skew"] > 1 and values.min() > 0
    figure, axes = panels(2 if skewed else 1, across=2, width=4.6 if skewed else 7.5, height=3.8)
    for axis, shown in zip(axes, (values, np.log10(values)) if skewed else (values,)):
        logarithm = "log10 of " if axis is not axes[0] else ""
        axis.hist(shown, bins=40, color=BLUE, edgecolor="white", linewidth=0.4)
        axis.axvline(
            shown.median(),
            color=ORANGE,
            label=f"median {shown.median():,.{0 if abs(shown.median()) >= 1000 else 3}f}",
        )
        axis.set(xlabel=logarithm + label(target_column, 40), ylabel="rows")
        axis.legend()
    figure.suptitle(f"Distribution of {label(target_column, 50)}")
    return figure


def draw_missing(table):
    """The share of missing values; where nothing is missing, the number of distinct values instead."""
    shares = table.isna().mean().sort_values(ascending=False, kind="stable")
    shares = shares[shares > 0].head(25)
    counts = table.nunique().sort_values(ascending=False, kind="stable").head(25)
    figure, (axis,) = panels(
        1, width=7.5, height=0.3 * len(shares if len(shares) else counts) + 1.4
    )
    if len(shares):
        bars(axis, shares.index, shares.to_numpy() * 100, lambda share: f"{share:.1f} %", ORANGE)
        axis.set(title="Columns with missing values", xlabel="missing, % of rows", ylabel="column")
        return figure
    bars(axis, counts.index, counts.to_numpy(), lambda n: f"{n:,.0f}", GREY)
    axis.set(
        title="No value is missing: distinct values per column",
        xlabel="distinct values",
        ylabel="column",
    )
    if counts.max() > 50 * counts.min():
        axis.set_xscale("log")
    return figure


def draw_histograms(table, names):
    """A histogram for each column on a scale; of free text, the number of words."""
    figure, axes = panels(len(names))
    for axis, name in zip(axes, names):
        values, unit = table[name].dropna(), ""
        if values.dtype == object:
            values, unit = values.str.split().str.len(), " (words)"
        if pd.api.types.is_numeric_dtype(values) and values.nunique() <= 12:
            counts = values.value_counts().sort_index()
            axis.bar([f"{value:g}" for value in counts.index], counts, color=BLUE, width=0.7)
            axis.grid(axis="x", visible=False)
        else:
            axis.hist(values, bins=30, color=BLUE, edgecolor="white", linewidth=0.3)
        axis.set(xlabel=label(name, 30) + unit, ylabel="rows")
        axis.locator_params(axis="y", nbins=5)
        few_ticks(axis, values)
    figure.suptitle("Distributions")
    return figure


def draw_counts(table, names):
    """The most frequent levels of each category."""
    figure, axes = panels(len(names), height=3.2)
    for axis, name in zip(axes, names):
        counts = often(table[name])[:8]
        axis.barh(range(len(counts)), counts.to_numpy(), color=BLUE, height=0.7)
        axis.set_yticks(
            range(len(counts)), [label(level, 16) for level in counts.index], fontsize=8
        )
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set(xlabel="rows", ylabel=label(name, 30))
    figure.suptitle("Most frequent levels of categories")
    return figure
'''

RELATION_CHARTS = r'''
def fifths(values):
    """Numbers as five groups of equal size."""
    return np.ceil(5 * values.rank(pct=True))


def matrix_of(table, names, categories):
    """Rank correlations of numeric columns; Cramér's V where fewer than two columns are numeric."""
    scales = [name for name in names if name != target_column or task_type == "regression"]
    numbers = [
        name
        for name in scales
        if name not in categories and pd.api.types.is_numeric_dtype(table[name])
    ]
    if len(numbers) >= 2:
        ranks = table[numbers].rank().to_numpy()
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # a column that does not vary relates to nothing
            values = np.nan_to_num(np.corrcoef(ranks, rowvar=False))
        np.fill_diagonal(values, 1.0)
        return pd.DataFrame(values, index=numbers, columns=numbers), "Rank correlation"
    names, levels = names[:15], {}
    for name in names:
        told = name in categories or (name == target_column and task_type == "classification")
        levels[name] = table[name] if told else fifths(as_numbers(table[name]))
    values = [
        [1.0 if left == right else cramers_v(levels[left], levels[right]) for right in names]
        for left in names
    ]
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
    for row, column in (
        (row, column) for row in range(size) for column in range(size) if size <= 16
    ):
        value = matrix.iat[row, column]
        axis.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if abs(value) > 0.6 else "black",
        )
    axis.set(title=f"{measure} between columns", xlabel="column", ylabel="column")
    figure.colorbar(image, ax=axis, label=measure, shrink=0.8)
    return figure


def draw_against_target(axis, table, name, categories):
    """One feature against the target."""
    target = table[target_column]
    dates, prose = pd.api.types.is_datetime64_any_dtype(table[name]), table[name].dtype == object
    unit = " (days)" if dates else " (words)" if prose and name not in categories else ""
    if task_type == "regression" and name not in categories:
        values = as_numbers(table[name])
        axis.scatter(values, target, s=9, alpha=0.35, color=BLUE, linewidths=0)
        tenth = np.ceil(10 * values.rank(pct=True))
        axis.plot(
            values.groupby(tenth).median(),
            target.groupby(tenth).median(),
            color=ORANGE,
            marker="o",
            markersize=3.5,
            label="median of each tenth",
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
        shares = pd.crosstab(
            levels[levels.isin(common)], target.astype(str), normalize="index"
        ).loc[list(common)]
        shown = shares.sum().sort_values(ascending=False, kind="stable").index[:7]
        left = np.zeros(len(shares))
        for colour, group in zip(CLASS_COLOURS, shown):
            axis.barh(
                range(len(shares)),
                shares[group],
                left=left,
                color=colour,
                height=0.75,
                label=label(group, 14),
            )
            left += shares[group].to_numpy()
        axis.set_yticks(
            range(len(shares)), [label(level, 14) for level in shares.index], fontsize=8
        )
        axis.invert_yaxis()
        axis.legend(
            fontsize=7,
            ncols=2,
            title=label(target_column, 18),
            title_fontsize=7,
            loc="upper left",
            bbox_to_anchor=(0, -0.2),
        )
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
        spread.append(
            (values - figures["median"])
            / ((figures["q75"] - figures["q25"]) or values.std() or 1.0)
        )
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
    shares = pd.Series(
        {name: 100 * distribution_analysis[name].get("rare_share", 0.0) for name in names}
    )
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
    period = next(
        (unit for unit, most in (("D", 60), ("W", 420), ("M", 1800), ("Q", 7000)) if span <= most),
        "Y",
    )
    when = days.dt.to_period(period).dt.start_time
    figure, (axis,) = panels(1, width=8.5, height=3.8)
    if task_type == "regression":
        middle = table[target_column].groupby(when).quantile([0.25, 0.5, 0.75]).unstack()
        axis.fill_between(
            middle.index, middle[0.25], middle[0.75], color="#c9dbef", label="middle half"
        )
        axis.plot(middle.index, middle[0.5], color=BLUE, marker="o", markersize=3.5, label="median")
        axis.set(ylabel=label(target_column))
    else:
        shares = pd.crosstab(when, table[target_column].astype(str), normalize="index")
        for colour, group in zip(
            CLASS_COLOURS, shares.sum().sort_values(ascending=False, kind="stable").index
        ):
            axis.plot(
                shares.index,
                shares[group],
                color=colour,
                marker="o",
                markersize=3.5,
                label=label(group),
            )
        axis.set(ylabel="share of rows")
    axis.legend(fontsize=8)
    axis.set(title=f"{label(target_column, 30)} over time", xlabel=label(date))
    few_ticks(axis, days, 8)
    return figure
'''
