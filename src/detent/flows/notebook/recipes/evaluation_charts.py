"""Code that draws scores and errors of the final model."""

from __future__ import annotations

FOLD_CHART = r'''
def draw_folds(fold_scores):
    """The primary metric in each fold, with mean, baseline and limits."""
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    scores = fold_scores[PRIMARY].to_numpy()
    axis.bar(np.arange(1, len(scores) + 1), scores, color=BLUE, width=0.6)
    axis.axhline(scores.mean(), color=ORANGE, label=f"mean {short(float(scores.mean()))}")
    axis.axhline(baseline_metrics[PRIMARY], color=GREY, linestyle=":", label="baseline")
    for limit in problem_thresholds:
        if limit["metric"] == PRIMARY and limit["value"] != "baseline":
            axis.axhline(
                limit["value"],
                color="#b0243c",
                linestyle="--",
                label=f"limit {limit['comparison']} {limit['value']:g}",
            )
    axis.set(title=f"{PRIMARY} by fold", xlabel="fold", ylabel=PRIMARY)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(axis="x", visible=False)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    save_chart(figure, "outputs/evaluation/folds.png", f"{PRIMARY} of the final settings in each fold")
'''

REGRESSION_CHARTS = r'''
def draw_holdout(y, predicted):
    """Predicted against actual values, and the errors, of the held-out rows."""
    figure, (left, right) = panels(2, across=2, width=5.0, height=4.2)
    shown = y.astype(float)
    left.scatter(shown, predicted, s=10, alpha=0.5, color=BLUE, edgecolors="none")
    ends = [min(shown.min(), predicted.min()), max(shown.max(), predicted.max())]
    left.plot(ends, ends, color=ORANGE, label="as it was")
    left.set(title="Predicted and actual", xlabel=f"actual {label(target_column)}", ylabel="predicted")
    left.legend(loc="upper left")
    right.hist(predicted - shown, bins=30, color=BLUE)
    right.axvline(0, color=ORANGE)
    right.set(title="Errors", xlabel="predicted minus actual", ylabel="rows")
    figure.suptitle(f"Hold-out: {len(y):,} rows")
    save_chart(figure, "outputs/evaluation/holdout.png", "Predicted and actual values of the held-out rows")
'''

CLASS_CHARTS = r'''
def draw_holdout(y, predicted):
    """The confusion matrix of the held-out rows, and how often each class is found."""
    often = y.value_counts()
    shown = sorted(often.index[:12]) if len(LABELS) > 12 else LABELS
    counts = (
        pd.crosstab(np.asarray(y), np.asarray(predicted))
        .reindex(index=shown, columns=shown, fill_value=0)
        .to_numpy()
    )
    figure, (left, right) = panels(2, across=2, width=5.2, height=4.4)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    left.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for row in range(len(shown)):
        for column in range(len(shown)):
            dark = shares[row, column] > 0.5
            left.annotate(
                f"{counts[row, column]:,}",
                (column, row),
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else "black",
            )
    names = [label(name, 12) for name in shown]
    left.set_xticks(range(len(shown)), names, rotation=45, ha="right")
    left.set_yticks(range(len(shown)), names)
    left.grid(visible=False)
    left.set(title="Rows by actual and predicted class", xlabel="predicted", ylabel="actual")
    right.barh(range(len(shown)), np.diag(shares), color=BLUE, height=0.6)
    right.set_yticks(range(len(shown)), names)
    right.invert_yaxis()
    right.set_xlim(0, 1)
    right.grid(axis="y", visible=False)
    right.set(title="Share of each class that is found", xlabel="share", ylabel="class")
    figure.suptitle(f"Hold-out: {len(y):,} rows")
    save_chart(figure, "outputs/evaluation/holdout.png", "Actual and predicted classes of the held-out rows")
'''
