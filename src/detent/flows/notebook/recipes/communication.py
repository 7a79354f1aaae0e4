"""The recipes of stage 8's first half: documentation, a one-page summary, and figures with captions."""

from __future__ import annotations

from detent.flows.notebook.recipes.code_text import cell, fill
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.flows.notebook.recipes.retries import ATTEMPT, attempted
from detent.flows.notebook.recipes.verdict_code import MEASURED, missed_code

# -- technical_documentation --------------------------------------------------------------------------------


def technical_documentation(kitchen: Kitchen) -> Recipe:
    """Write method, data and results down for a colleague."""
    slots = {
        "METHOD": attempted(kitchen, "methodology_document", '"The method was not written down."'),
        "PIPELINE": attempted(kitchen, 'processing_pipeline_doc["steps"]', "[]"),
        "TABLE": attempted(kitchen, "scores_table()", '"The scores could not be put into a table."'),
    }
    return Recipe(
        lead=(
            "A colleague should be able to follow, doubt and repeat this work. The documentation holds "
            "the data, the method as it was fixed before training, what was measured, and what speaks "
            "against the result."
        ),
        code=cell(
            missed_code(kitchen),
            MEASURED,
            ATTEMPT if kitchen.iteration > 1 else "",
            fill(_DOCUMENTATION, slots),
        ),
        result=_DOCUMENTATION_RESULT,
    )


_DOCUMENTATION = r"""
technical_documentation = "\n".join(
    [
        f"# Technical documentation: {code_name(target_column)}",
        "",
        f"The goal was **{verdict()}**.",
        "",
        *(f"- {line}" for line in verdict_lines()),
        "",
        "## Data",
        f"- file {measured('data_inventory_checklist', 'file')}, "
        f"{figure_text(measured('data_inventory_checklist', 'bytes'))} bytes, "
        f"SHA-256 {measured('data_inventory_checklist', 'sha256')}",
        f"- read: {len(raw_dataset):,} rows, {raw_dataset.shape[1]:,} columns; used: {len(df_typed):,} rows",
        *(f"- {step}" for step in <<PIPELINE>>),
        "",
        <<METHOD>>.replace("\n#", "\n##").replace("# Method", "## Method", 1),
        "",
        "## Result",
        f"The final model: {figure_text(measured('best_params'))}.",
        "",
        <<TABLE>>,
        "",
        "## Limits",
        limits_table(),
        "",
        "## What speaks for and against it",
        f"- rows in training and hold-out: {len(X_train):,} and "
        f"{figure_text(measured('test_performance', 'n'))}",
        f"- leaks that remain: {figure_text(measured('leakage_report', 'leaks'))}",
        f"- columns taken out as leaks: {figure_text(measured('leakage_report', 'removed'))}",
        "- variation over perturbed refits: "
        f"{figure_text(measured('stability_metrics', 'variation_coefficient'))}",
        f"- stability: {figure_text(stability_verdict())}",
        f"- better than the baseline: {figure_text(measured('business_impact_report', 'beats_baseline'))}",
        "",
        "## Repeating it",
        f"Seed {RANDOM_STATE}; "
        + ", ".join(f"{name} {version}" for name, version in library_versions.items())
        + ". Run all cells of the notebook from the top, with the data file in the folder assets.",
    ]
)
Path("outputs").mkdir(exist_ok=True)
Path("outputs/technical_documentation.md").write_text(
    technical_documentation + "\n", encoding="utf-8", newline="\n"
)
print(technical_documentation)
"""

_DOCUMENTATION_RESULT = r"""
(
    f"The documentation stands in `outputs/technical_documentation.md`. The goal was **{verdict()}**:\n\n"
    + "\n".join(f"- {line}" for line in verdict_lines())
)
"""


# -- executive_summary --------------------------------------------------------------------------------------


def executive_summary(kitchen: Kitchen) -> Recipe:
    """Say on one page what was asked, what was reached, and what to make of it."""
    slots = {
        "CLOSEST": attempted(kitchen, "list(relation_strength.items())", "[]"),
        "ADVICE": attempted(kitchen, "improvements()", "[]"),
    }
    return Recipe(
        lead=(
            "One page for those who decide. The answer comes first, and whether what was asked for is "
            "reached, in plain words, also when it is not."
        ),
        code=cell(missed_code(kitchen), ATTEMPT if kitchen.iteration > 1 else "", fill(_SUMMARY, slots)),
        result=_SUMMARY_RESULT,
    )


_SUMMARY = r'''
def quality_in_words():
    """How good the model is, in the target's own terms, beside the baseline on the same rows."""
    metric = "mae" if task_type == "regression" else "balanced_accuracy"
    score, usual = (
        figure_text(measured(name, metric)) for name in ("test_performance", "baseline_performance")
    )
    if task_type == "regression":
        words = f"On rows it had never seen, its prediction is off by {score} on average"
        return words + f"; the baseline, which knows no feature, is off by {usual} on the same rows."
    words = f"On rows it had never seen, its balanced accuracy is {score}"
    return words + f"; that of the baseline, which knows no feature, is {usual} on the same rows."


def improvements():
    """What stability testing advises, as sentences."""
    advice = measured("improvement_recommendations")
    if isinstance(advice, str):
        return [] if advice == NOT_MEASURED else [advice]
    return [figure_text(item) for item in (advice.values() if isinstance(advice, dict) else advice)]


missed = [row for row in limits_reached() if not row["met"]]
undecided = [row for row in limits_reached() if row["undecided"]]
closest = <<CLOSEST>>
executive_summary = "\n".join(
    [
        "# Summary",
        "",
        f"**Question.** {' '.join(user_problem.split())}",
        "",
        f"**Answer.** The goal was **{verdict()}**. "
        + (
            f"Missed: {len(missed)} of {counted(len(problem_thresholds), 'limit')}."
            if missed
            else "Every limit is met."
            if not misses()
            else f"Every limit is met, but not {counted(len(misses()), 'criterion', 'criteria')} beside them."
        )
        + (
            f" Undecided: {len(undecided)}, within the range of chance, so that a new sample could turn it."
            if undecided
            else ""
        ),
        "",
        *(f"- {line}" for line in verdict_lines()),
        "",
        f"**How good it is.** {quality_in_words()} The final model is "
        f"{figure_text(measured('best_params', 'model'))}, "
        f"trained on {len(X_train):,} rows with {X_train.shape[1]:,} features.",
        "",
        f"**What goes with {code_name(target_column)}.** "
        + (
            "Most closely "
            + ", ".join(f"{code_name(name)} ({figure_text(value)})" for name, value in closest[:3])
            + " on a scale from 0 to 1. This says what goes together, not what causes what."
            if closest
            else "See the exploration."
        ),
        "",
        "**How far to trust it.** Variation of its score when rows and decisions change, as a share of "
        f"the mean: {figure_text(measured('stability_metrics', 'variation_coefficient'))}. Columns that "
        f"gave the answer away and were taken out: {figure_text(measured('leakage_report', 'removed'))}.",
        "",
        "**What next.** "
        + (
            "Use it as described in the guide, and watch its errors on new rows."
            if not (missed or misses())
            else "Do not rely on it where the limits matter; more or better data would help most."
        )
        + "".join(f"\n- {advice}" for advice in <<ADVICE>>[:5]),
    ]
)
print(executive_summary)
'''

_SUMMARY_RESULT = r"""
executive_summary.split("\n", 2)[2]
"""


# -- visualization_package ----------------------------------------------------------------------------------


def visualization_package(kitchen: Kitchen) -> Recipe:
    """Draw the scores against the limits, and list all figures with captions."""
    slots = {
        "CAPTIONS": attempted(kitchen, "dict(chart_captions)", "{}"),
        "MORE": _MORE_FIGURES if kitchen.iteration > 1 else "",
    }
    return Recipe(
        lead=(
            "All figures of this work with their captions, and one more that puts the final scores "
            "beside the baseline and the limits."
        ),
        code=cell(missed_code(kitchen), ATTEMPT if kitchen.iteration > 1 else "", fill(_FIGURES, slots)),
        result=_FIGURES_RESULT,
    )


_FIGURES = r'''
def draw_scores(metrics):
    """Baseline and model for each metric, in the folds and on the hold-out, with interval and limit."""
    figure, axes = plt.subplots(
        1,
        len(metrics),
        figsize=(max(6.5, 4.0 * len(metrics)), 3.8),
        squeeze=False,
        layout="constrained",
    )
    for axis, metric in zip(axes.flat, metrics):
        names = {
            "baseline,\nfolds": "baseline_metrics",
            "model,\nfolds": "cv_metrics",
            "baseline,\nhold-out": "baseline_performance",
            "model,\nhold-out": "test_performance",
        }
        scores = {name: measured(source, metric) for name, source in names.items()}
        scores = {
            name: score
            for name, score in scores.items()
            if isinstance(score, (int, float, np.number))
        }
        colours = dict(zip(names, ("#8a8f98", "#2f6db3", "#8a8f98", "#e07b39")))
        axis.bar(
            list(scores), list(scores.values()), color=[colours[name] for name in scores], width=0.6
        )
        interval = measured("holdout_interval", metric)
        scored = "model,\nhold-out"
        if not isinstance(interval, str) and scored in scores:
            place, score = list(scores).index(scored), scores[scored]
            reach = [[max(0.0, score - interval[0])], [max(0.0, interval[1] - score)]]
            axis.errorbar(place, score, yerr=reach, color="#333333", capsize=5, linewidth=1.2)
        for place, score in enumerate(scores.values()):
            axis.annotate(
                figure_text(score),
                (place, 0),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color="white" if score > 0 else "black",
                fontweight="bold",
                fontsize=9,
            )
        for limit in problem_thresholds:
            if limit["metric"] == metric and limit["value"] != "baseline":
                axis.axhline(
                    limit["value"],
                    color="#b0243c",
                    linestyle="--",
                    label=f"limit {limit['comparison']} {limit['value']:g}",
                )
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
        axis.set(xlabel="scored on", ylabel=metric)
        axis.grid(axis="x", visible=False)
    figure.suptitle("Final scores against baseline and limits")
    return figure


def caption_of(path):
    """The caption a chart was saved with, or words made from its name."""
    return (
        captions.get(path)
        or Path(path).stem.lstrip("0123456789_").replace("_", " ").capitalize()
        or path
    )


metrics_drawn = list(dict.fromkeys(limit["metric"] for limit in problem_thresholds))
figure = draw_scores(metrics_drawn[:4])
Path("outputs/report").mkdir(parents=True, exist_ok=True)
figure.savefig("outputs/report/scores.png", dpi=110)
plt.show()
plt.close(figure)

captions = {**<<CAPTIONS>>, "outputs/report/scores.png": f"Final scores: the goal was {verdict()}"}
<<MORE>>
visualization_package = {
    path.as_posix(): caption_of(path.as_posix()) for path in sorted(Path("outputs").rglob("*.png"))
}
for path, caption in visualization_package.items():
    print(f"{path:<48} {caption}")
'''

_MORE_FIGURES = r"""
# Fewer than eight figures so far: how each of the first columns is spread.
for number, name in enumerate([target_column, *X_train.columns] * 8, 1):
    if len(list(Path("outputs").rglob("*.png"))) >= 8:
        break
    figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
    df_typed[name].dropna().astype(str).value_counts().sort_index().head(12 + number).plot.bar(
        ax=axis, color="#2f6db3"
    )
    axis.set(
        title="Rows by value", xlabel=" ".join(name.split())[:40].replace("$", r"\$"), ylabel="rows"
    )
    figure.savefig(f"outputs/report/rows_{number:02d}.png", dpi=110)
    plt.close(figure)
"""

_FIGURES_RESULT = r"""
(
    f"{len(visualization_package)} figures:\n\n"
    + "\n".join(
        f"- `{path}`: {' '.join(caption.split())}"
        for path, caption in visualization_package.items()
    )
)
"""
