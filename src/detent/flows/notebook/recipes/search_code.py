"""Code that scores models, sizes the work by the table's shape, and lists candidates and their settings."""

from __future__ import annotations

SCORES = r'''
def scores_of(y_true, predicted, probability=None):
    """All scores of predictions; shares of one class mean the last label in order, of several the mean over them."""
    if not IS_CLASSIFICATION:
        squared = mean_squared_error(y_true, predicted)
        return {"r2": r2_score(y_true, predicted), "rmse": squared**0.5, "mse": squared,
                "mae": mean_absolute_error(y_true, predicted),
                "mape": mean_absolute_percentage_error(y_true, predicted)}
    truth = pd.Series(np.asarray(y_true))
    present = [label for label in LABELS if (truth == label).any()]
    which = dict(average="binary", pos_label=LABELS[1]) if len(LABELS) == 2 else dict(average="macro", labels=present)
    scores = {
        "accuracy": accuracy_score(truth, predicted),
        "balanced_accuracy": recall_score(truth, predicted, labels=present, average="macro", zero_division=0),
        "f1": f1_score(truth, predicted, zero_division=0, **which),
        "precision": precision_score(truth, predicted, zero_division=0, **which),
        "recall": recall_score(truth, predicted, zero_division=0, **which),
    }
    if probability is not None:
        asked = [LABELS[1]] if len(LABELS) == 2 else present
        areas = [roc_auc_score(truth == label, probability[label]) for label in asked if 0 < (truth == label).sum() < len(truth)]
        scores["auc"] = float(np.mean(areas)) if areas else np.nan
        chance = probability.to_numpy()[np.arange(len(truth)), [LABELS.index(label) for label in truth]]
        scores["log_loss"] = float(-np.log(np.clip(chance, 1e-15, None)).mean())
    return {name: float(value) for name, value in scores.items()}


def probabilities(model, X):
    """A column of probabilities per label, also for a label that this model has not seen."""
    given = pd.DataFrame(model.predict_proba(X), columns=list(model.classes_))
    return given.reindex(columns=LABELS, fill_value=0.0)


def all_scores(model, X, y):
    """The scores of a fitted model on rows."""
    with_chances = IS_CLASSIFICATION and hasattr(model, "predict_proba")
    return scores_of(y, model.predict(X), probabilities(model, X) if with_chances else None)


def primary_score(model, X, y):
    """The primary metric, turned so that more is better."""
    return (1 if HIGHER_IS_BETTER else -1) * all_scores(model, X, y)[PRIMARY]


def cross_validated(model, X, y, parts=None):
    """Scores fold by fold; the folds follow the rule of the hold-out."""
    folds = folds_of(y, parts or FOLDS)
    result = cross_validate(model, X, y, cv=folds, scoring=all_scores, n_jobs=jobs_for(X))
    return pd.DataFrame({name[5:]: values for name, values in result.items() if name.startswith("test_")})


def is_better(one, other):
    """Whether one value of the primary metric is better than another."""
    return one > other if HIGHER_IS_BETTER else one < other


def as_table(rows, columns=None):
    """Rows as a Markdown table."""
    table = pd.DataFrame(rows, columns=columns)
    shown = table.map(lambda value: f"{value:,.4g}" if isinstance(value, float) else str(value).replace("|", "/"))
    lines = [list(shown.columns), ["---"] * shown.shape[1], *shown.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
'''.strip()

SIZES = r'''
# The work is sized by the shape of the table, so that a run repeats exactly and large tables stay affordable.
OUTPUTS = len(LABELS) if len(LABELS) > 2 else 1
CELLS_PER_ROW = encoded_columns * OUTPUTS


def jobs_for(X):
    """Processes only where the work is worth their start."""
    return N_JOBS if len(X) * CELLS_PER_ROW > 400_000 else 1


def some_rows(cells):
    """Training rows, all or a random part of them, that encoded make up about so many cells."""
    wanted = max(2000, int(cells // CELLS_PER_ROW))
    if wanted >= len(X_train):
        return X_train.index
    strata = in_strata(y_train) if IS_CLASSIFICATION else None
    drawn, _ = train_test_split(np.arange(len(X_train)), train_size=wanted, random_state=RANDOM_STATE, stratify=strata)
    return X_train.index[np.sort(drawn)]


def tree_share():
    """Columns that a forest tries at a split, as a share."""
    return encoded_columns**-0.5 if IS_CLASSIFICATION else 1 / 3


def forest_shape(rows):
    """How many trees, and the share of the rows that each is grown on."""
    drawn = min(rows, 10_000)
    kinds = columns_by_kind(X_train)
    measured = min(len(kinds["numbers"]) + 3 * len(kinds["dates"]) + 100 * len(kinds["texts"]), encoded_columns)
    # An encoded level has one place to split at, a measured number has many.
    work = drawn * np.log2(max(drawn, 2)) * tree_share() * (measured + 0.1 * (encoded_columns - measured))
    trees = int(np.clip(6e7 / work, 40, 200 if len(X_train) >= 100 else 60))
    return {"n_estimators": trees, "max_samples": drawn / rows if drawn < rows else None}


def for_rows(model, rows):
    """The model with its forests shaped for so many rows."""
    shape = forest_shape(rows)
    sizes = {name: shape[name.rsplit("__", 1)[-1]] for name in model.get_params()
             if name.endswith("__max_samples") or name.endswith("__n_estimators") and name.replace("n_estimators", "max_samples") in model.get_params()}
    return clone(model).set_params(**sizes)
'''.strip()

CANDIDATES = r'''
def model_of(estimator, log_target=LOG_TARGET, **how):
    """An estimator behind the preparation of the features; of a skewed target it learns the logarithm."""
    pipeline = Pipeline([("features", build_features(X_train, keep_best=KEEP_BEST, **how)), ("model", estimator)])
    if not log_target:
        return pipeline
    there, back = (np.log, np.exp) if (y_train > 0).all() else (np.log1p, np.expm1)
    return TransformedTargetRegressor(pipeline, func=there, inverse_func=back, check_inverse=False)


def linear_estimator():
    """The plain, well understood candidate."""
    if IS_CLASSIFICATION:
        return LogisticRegression(class_weight=CLASS_WEIGHT, max_iter=1000, tol=1e-3, random_state=RANDOM_STATE)
    return Ridge(alpha=10.0, random_state=RANDOM_STATE)


def forest_estimator(kind):
    """A forest whose size follows the table's shape."""
    shape = forest_shape(len(X_train))
    shape.update(max_features=tree_share(), min_samples_leaf=1 if IS_CLASSIFICATION else 2, random_state=RANDOM_STATE)
    if kind == "extra":
        maker = ExtraTreesClassifier if IS_CLASSIFICATION else ExtraTreesRegressor
        shape["bootstrap"] = True
    else:
        maker = RandomForestClassifier if IS_CLASSIFICATION else RandomForestRegressor
    return maker(**shape, **({"class_weight": CLASS_WEIGHT} if IS_CLASSIFICATION else {}))


def boosting_estimator(**settings):
    """Gradient boosting on histograms."""
    if IS_CLASSIFICATION:
        if settings:
            settings["class_weight"] = CLASS_WEIGHT
        # Stopping early needs every class twice in a held-back part.
        settings.setdefault("early_stopping", "auto" if y_train.value_counts().min() >= 50 else False)
        return HistGradientBoostingClassifier(random_state=RANDOM_STATE, **settings)
    return HistGradientBoostingRegressor(random_state=RANDOM_STATE, **settings)


def library_estimator():
    """A boosting library if one is installed, else None."""
    common = dict(n_estimators=200, learning_rate=0.05, random_state=RANDOM_STATE, n_jobs=1)
    try:
        import lightgbm
    except ImportError:
        lightgbm = None
    if lightgbm is not None:
        quiet = dict(common, num_leaves=31 if len(X_train) >= 100 else 7, deterministic=True, force_row_wise=True, verbose=-1)
        return lightgbm.LGBMClassifier(class_weight=CLASS_WEIGHT, **quiet) if IS_CLASSIFICATION else lightgbm.LGBMRegressor(**quiet)
    try:
        import xgboost
    except ImportError:
        return None
    if IS_CLASSIFICATION:  # It takes classes only as 0, 1, 2 and so on.
        return xgboost.XGBClassifier(**common) if LABELS == list(range(len(LABELS))) else None
    return xgboost.XGBRegressor(**common)


def boosting_settings():
    """Slower learning with smaller trees than the defaults; simpler below 100 rows."""
    if len(X_train) < 100:
        return dict(learning_rate=0.1, max_iter=60, max_leaf_nodes=7, min_samples_leaf=5)
    return dict(learning_rate=0.05, max_iter=300, max_leaf_nodes=12, min_samples_leaf=10, l2_regularization=1.0, max_features=0.4)


def make_candidates():
    """The candidates by name; boosting with its defaults is always one of them."""
    found = {
        LINEAR: model_of(linear_estimator()),
        FOREST: model_of(forest_estimator("random")),
        BOOSTING: model_of(boosting_estimator(**boosting_settings())),
        DEFAULTS: model_of(boosting_estimator(), log_target=False),
    }
    library = library_estimator()
    if library is not None:
        found[type(library).__name__] = model_of(library)
    return found
'''.strip()

SEARCH = r'''
SEARCH_CELLS, SEARCH_WORK = 600_000, 60


def settings_space(model):
    """Distributions of the settings that matter most for this kind of model."""
    prefix = "regressor__model__" if isinstance(model, TransformedTargetRegressor) else "model__"
    estimator = model.get_params()[prefix[:-2]]
    small = len(X_train) < 100
    if isinstance(estimator, (Ridge, LogisticRegression)):
        space = {"alpha": loguniform(0.01, 1000)} if isinstance(estimator, Ridge) else {"C": loguniform(0.001, 100)}
    elif hasattr(estimator, "max_leaf_nodes") and hasattr(estimator, "max_iter"):
        space = {"learning_rate": loguniform(0.02, 0.2), "max_iter": randint(30, 101) if small else randint(100, 401),
                 "max_leaf_nodes": randint(3, 9) if small else randint(4, 32), "min_samples_leaf": randint(3, 11) if small else randint(5, 41),
                 "l2_regularization": loguniform(0.001, 10), "max_features": uniform(0.2, 0.8)}
    elif hasattr(estimator, "max_samples"):
        space = {"max_features": uniform(0.1, 0.8), "min_samples_leaf": randint(1, 8), "max_depth": randint(6, 31)}
    else:  # A boosting library
        space = {"learning_rate": loguniform(0.02, 0.2), "n_estimators": randint(100, 401),
                 "colsample_bytree": uniform(0.3, 0.7), "reg_lambda": loguniform(0.01, 10)}
        space["num_leaves" if hasattr(estimator, "num_leaves") else "max_depth"] = randint(5, 32) if hasattr(estimator, "num_leaves") else randint(2, 7)
    return {prefix + name: values for name, values in space.items()}


def affordable(settings, parts):
    """As many random settings as the shape of the table allows; four at least."""
    rows = len(some_rows(SEARCH_CELLS))
    work = 0.15 + 8e-7 * rows * CELLS_PER_ROW + 4e-3 * CELLS_PER_ROW
    most = settings if len(X_train) >= 100 else max(4, settings // 2)
    return int(np.clip(SEARCH_WORK / (parts * work), 4, most))


def searched(model, settings, parts):
    """The model with the best of some random settings, the same ones at every run."""
    rows = some_rows(SEARCH_CELLS)
    search = RandomizedSearchCV(
        for_rows(model, len(rows)), settings_space(model), n_iter=settings, scoring=primary_score,
        cv=folds_of(y_train[rows], parts), random_state=RANDOM_STATE, n_jobs=jobs_for(X_train.loc[rows]), refit=False,
    )
    search.fit(X_train.loc[rows], y_train[rows])
    return clone(model).set_params(**search.best_params_)


def primary_mean(folds):
    """The folds' mean of the primary metric; the worst there is if a fold could not be scored."""
    mean = folds[PRIMARY].mean(skipna=False)
    return mean if np.isfinite(mean) else (-np.inf if HIGHER_IS_BETTER else np.inf)


def meets(threshold, scores, baseline):
    """Whether scores keep a threshold; where the user set none, the baseline is to be beaten."""
    limit = baseline[threshold["metric"]] if threshold["value"] == "baseline" else threshold["value"]
    score = scores[threshold["metric"]]
    return bool({"<": score < limit, "<=": score <= limit, ">": score > limit, ">=": score >= limit}[threshold["comparison"]])
'''.strip()
