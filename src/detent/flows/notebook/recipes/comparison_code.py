"""Code that scores models, compares them on the same folds, and sizes the work by the table's shape."""

from __future__ import annotations

SCORES = r'''
def scores_of(y_true, predicted, chances=None):
    """All scores of predictions. Of two classes the last is the positive one; more classes count equally."""
    if not IS_CLASSIFICATION:
        squared = mean_squared_error(y_true, predicted)
        scores = {
            "r2": r2_score(y_true, predicted) if len(y_true) > 1 else np.nan,
            "rmse": squared**0.5,
            "mse": squared,
            "mae": mean_absolute_error(y_true, predicted),
            "mape": mean_absolute_percentage_error(y_true, predicted),
        }
        return {name: float(score) for name, score in scores.items()}
    truth, guessed = np.asarray(y_true), np.asarray(predicted)
    places = [place for place, label in enumerate(LABELS) if (truth == label).any()]
    precision, recall, f1, _ = precision_recall_fscore_support(
        truth, guessed, labels=LABELS, zero_division=0
    )
    asked = [1] if len(LABELS) == 2 else places
    scores = {
        "accuracy": (truth == guessed).mean(),
        "balanced_accuracy": recall[places].mean(),
        "f1": f1[asked].mean(),
        "precision": precision[asked].mean(),
        "recall": recall[asked].mean(),
    }
    if chances is not None:
        ranks, areas = chances.rank().to_numpy(), []
        for place in asked:
            # The area under the ROC curve is the share of pairs, one row with the label and one without,
            # that the probabilities put in the right order.
            ours = truth == LABELS[place]
            pairs = ours.sum() * (~ours).sum()
            if pairs:
                areas.append((ranks[ours, place].sum() - ours.sum() * (ours.sum() + 1) / 2) / pairs)
        place_of = {label: place for place, label in enumerate(LABELS)}
        of_truth = chances.to_numpy()[np.arange(len(truth)), [place_of[label] for label in truth]]
        scores["auc"] = np.mean(areas) if areas else np.nan
        scores["log_loss"] = -np.log(np.clip(of_truth, 1e-15, None)).mean()
    return {name: float(score) for name, score in scores.items()}


def chances_of(model, X):
    """A column of probabilities for each label, also for one that this model has not seen."""
    given = pd.DataFrame(model.predict_proba(X), columns=list(model.classes_))
    return given.reindex(columns=LABELS, fill_value=0.0)


def all_scores(model, X, y):
    """All scores of a fitted model on rows."""
    chances = chances_of(model, X) if IS_CLASSIFICATION and hasattr(model, "predict_proba") else None
    return scores_of(y, model.predict(X), chances)


def worth(score):
    """A score as more is better; an error by its logarithm, so that no hard fold decides alone."""
    return score if HIGHER_IS_BETTER else -np.log(np.maximum(score, 1e-300))


def primary_worth(model, X, y):
    """What a fitted model's primary metric on rows is worth."""
    return worth(all_scores(model, X, y)[PRIMARY])
'''

SIZES = r'''
# The work is sized by the shape of the table, never by the clock: a run repeats exactly, and large tables
# stay affordable. Cells are rows times encoded columns, times classes where there are more than two.
CELLS_PER_ROW = encoded_columns * (len(LABELS) if len(LABELS) > 2 else 1)


def jobs_for(X):
    """Processes, where the work is worth their start."""
    return N_JOBS if len(X) * CELLS_PER_ROW > 400_000 else 1


def some_rows(cells):
    """Training rows that, encoded, make up about so many cells: all of them, or some drawn at random."""
    wanted = max(2000, int(cells // CELLS_PER_ROW))
    if wanted >= len(X_train):
        return X_train.index
    strata = in_strata(y_train) if IS_CLASSIFICATION else None
    places = np.arange(len(X_train))
    drawn, _ = train_test_split(places, train_size=wanted, random_state=RANDOM_STATE, stratify=strata)
    return X_train.index[np.sort(drawn)]


def tried_share():
    """The share of the columns that a forest tries at a split."""
    return encoded_columns**-0.5 if IS_CLASSIFICATION else 1 / 3


def forest_shape(rows):
    """How many trees a forest has, and on which share of so many rows each is grown."""
    drawn = min(rows, 10_000)
    kinds = columns_by_kind(X_train)
    measured = len(kinds["numbers"]) + 3 * len(kinds["dates"]) + 100 * len(kinds["texts"])
    # An encoded level can be split at one place, a measured number at many.
    columns = 0.1 * encoded_columns + 0.9 * min(measured, encoded_columns)
    trees = 4e7 / (drawn * np.log2(max(drawn, 2)) * tried_share() * columns)
    most = 100 if len(X_train) >= 100 else 50
    return {
        "n_estimators": int(np.clip(trees, 40, most)),
        "max_samples": drawn / rows if drawn < rows else None,
    }


def for_rows(model, rows):
    """The model with its forests, if it has any, shaped for so many rows."""
    shape, settings = forest_shape(rows), model.get_params()
    forests = [name.removesuffix("max_samples") for name in settings if name.endswith("__max_samples")]
    return clone(model).set_params(
        **{forest + name: value for forest in forests for name, value in shape.items()}
    )
'''

COMPARISON = r'''
def cross_validated(model, X, y):
    """All scores, a row for each fold; the folds follow the rule of the hold-out."""
    with parallel_config("loky", inner_max_num_threads=1):
        result = cross_validate(
            for_rows(model, len(X)), X, y, cv=folds_of(y, FOLDS), scoring=all_scores, n_jobs=jobs_for(X)
        )
    return pd.DataFrame({name[5:]: scores for name, scores in result.items() if name.startswith("test_")})


def best_names(folds, count=1):
    """The names of the best, the best first; one that a fold could not score comes last."""
    value = {name: worth(table[PRIMARY].to_numpy()).mean() for name, table in folds.items()}
    return sorted(folds, key=lambda name: value[name] if np.isfinite(value[name]) else -np.inf, reverse=True)[
        :count
    ]


def meets(limit, scores, baseline):
    """Whether scores keep a limit; where the user set none, the baseline is to be beaten."""
    score, value = scores[limit["metric"]], limit["value"]
    value = baseline[limit["metric"]] if value == "baseline" else value
    answers = {"<": score < value, "<=": score <= value, ">": score > value, ">=": score >= value}
    return bool(answers[limit["comparison"]])


def short(value):
    """A figure as text: whole if it is large, else four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def markdown_table(rows):
    """Rows as a Markdown table."""
    lines = [list(rows[0]), ["---"] * len(rows[0])]
    lines += [
        [short(value) if isinstance(value, float) else str(value) for value in row.values()] for row in rows
    ]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)
'''
