"""Code of cells that draws: the look of all charts, and how closely columns are related."""

from __future__ import annotations

CHARTS = r'''
plt.rcParams.update(
    {
        "figure.dpi": 100,
        "savefig.dpi": 110,
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "figure.titlesize": 13,
        "figure.titleweight": "bold",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": "#e8e8e8",
        "grid.linewidth": 0.8,
        "legend.frameon": False,
    }
)
BLUE, ORANGE, GREY = "#2f6db3", "#e07b39", "#8a8f98"
CLASS_COLOURS = "#2f6db3 #e07b39 #4f9d69 #b2497a #8a6bbf #c9a227 #3aa0a8 #8a8f98".split()
# Names in other scripts need a font that has their signs.
FONTS = "DejaVu Sans|Noto Sans CJK SC|Noto Sans CJK JP|Microsoft YaHei|PingFang SC|Arial Unicode MS".split(
    "|"
)
installed_fonts = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
plt.rcParams["font.family"] = [name for name in FONTS if name in installed_fonts]
chart_captions = {}


def label(name, width=22):
    """A name that fits beside an axis; a dollar sign must not begin a formula."""
    text = " ".join(str(name).split()) or "(empty)"
    return (text if len(text) <= width else text[: width - 1] + "…").replace("$", r"\$")


def often(values):
    """How often each level occurs, the most frequent first, ties by name."""
    return (
        values.dropna()
        .astype(str)
        .value_counts()
        .sort_index()
        .sort_values(ascending=False, kind="stable")
    )


def panels(count, across=3, width=3.7, height=3.0):
    """A figure with so many panels, and the panels in order."""
    across = 2 if count == 4 else max(1, min(across, count))
    down = -(-count // across)
    size = (max(across * width, 6.5), max(down * height, 2.2))
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for spare in axes.flat[count:]:
        spare.remove()
    return figure, list(axes.flat[:count])


def few_ticks(axis, values, most=5):
    """So many ticks below an axis that they do not overlap."""
    if pd.api.types.is_datetime64_any_dtype(values):
        axis.xaxis.set_major_locator(matplotlib.dates.AutoDateLocator(minticks=2, maxticks=most))
        axis.xaxis.set_major_formatter(
            matplotlib.dates.ConciseDateFormatter(axis.xaxis.get_major_locator())
        )
    elif not axis.xaxis.have_units():
        axis.locator_params(axis="x", nbins=most)
        if np.abs(values).max() >= 100_000:
            axis.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))


def save_chart(figure, path, caption):
    """Save a chart, show it here, and remember what it says."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    chart_captions[path] = caption
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # signs that no font here has
        figure.savefig(path)
        plt.show()
    plt.close(figure)


def bars(axis, names, values, shown, colour=BLUE):
    """Horizontal bars, the first one on top, each with its value beside it."""
    axis.barh(range(len(names)), values, color=colour, height=0.7)
    axis.set_yticks(range(len(names)), [label(name, 26) for name in names])
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    for place, value in enumerate(values):
        axis.annotate(
            shown(value),
            (value, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.margins(x=0.12)


def boxes(axis, groups, names):
    """Horizontal boxes, the first one on top."""
    newer = tuple(int(part) for part in matplotlib.__version__.split(".")[:2]) >= (3, 10)
    lying = {"orientation": "horizontal"} if newer else {"vert": False}
    axis.boxplot(
        groups,
        **lying,
        patch_artist=True,
        widths=0.6,
        boxprops={"facecolor": "#c9dbef", "edgecolor": BLUE},
        medianprops={"color": ORANGE, "linewidth": 1.6},
        flierprops={"markersize": 2, "markeredgecolor": GREY, "alpha": 0.5},
    )
    axis.set_yticks(range(1, len(names) + 1), [label(name, 18) for name in names], fontsize=8)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
'''

RELATIONS = r'''
def sampled(table, rows):
    """At most so many rows, drawn with the notebook's seed."""
    return table.sample(rows, random_state=RANDOM_STATE) if len(table) > rows else table


def as_numbers(values):
    """A column on a scale: dates as days, texts by their number of words."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return (values - values.min()).dt.total_seconds() / 86400
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    return values.astype(str).str.split().str.len().astype(float)


def rank_correlation(left, right):
    """Spearman's correlation, 0 where one side does not vary."""
    left, right = left.rank().to_numpy(), right.rank().to_numpy()
    if left.std() == 0 or right.std() == 0:
        return 0.0
    return float(np.corrcoef(left, right)[0, 1])


def group_effect(groups, values):
    """How much of the ranks of numbers the groups explain, 0 to 1, corrected for the number of groups."""
    ranks = values.rank()
    by_group = ranks.groupby(groups.astype(str).to_numpy())
    total, rows, levels = ((ranks - ranks.mean()) ** 2).sum(), len(ranks), by_group.ngroups
    if total == 0 or rows <= levels:
        return 0.0
    within = ((ranks - by_group.transform("mean")) ** 2).sum()
    return float(np.sqrt(max(0.0, 1 - within / total * (rows - 1) / (rows - levels))))


def cramers_v(left, right):
    """How closely two categories are related, 0 to 1, corrected for chance."""
    counts = pd.crosstab(left.astype(str).to_numpy(), right.astype(str).to_numpy()).to_numpy(
        dtype=float
    )
    rows, (down, across) = counts.sum(), counts.shape
    if min(down, across) < 2 or rows < 2:
        return 0.0
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / rows
    phi = ((counts - expected) ** 2 / expected).sum() / rows
    phi = max(0.0, phi - (down - 1) * (across - 1) / (rows - 1))
    down, across = down - (down - 1) ** 2 / (rows - 1), across - (across - 1) ** 2 / (rows - 1)
    return float(np.sqrt(phi / max(min(down, across) - 1, 1e-9))) if phi else 0.0


def relation(table, feature, categories):
    """Strength of a feature's relation with the target, 0 to 1, on one scale for all kinds of columns."""
    values, target = table[feature], table[target_column]
    if task_type == "regression":
        if feature in categories:
            return group_effect(values, target)
        return abs(rank_correlation(as_numbers(values), target))
    if feature in categories:
        return min(1.0, cramers_v(values, target))
    return group_effect(target, as_numbers(values))
'''
