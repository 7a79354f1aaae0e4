"""Code that lists the candidates, and searches their settings."""

from __future__ import annotations

CANDIDATES = r'''
def model_of(estimator, log_target=LOG_TARGET, **how):
    """An estimator behind the preparation of the features; of a skewed target it learns the logarithm."""
    pipeline = Pipeline(
        [("features", build_features(X_train, keep_best=KEEP_BEST, **how)), ("model", estimator)]
    )
    if not log_target:
        return pipeline
    there, back = (np.log, np.exp) if (y_train > 0).all() else (np.log1p, np.expm1)
    return TransformedTargetRegressor(pipeline, func=there, inverse_func=back, check_inverse=False)


def linear_estimator():
    """The plain candidate, steady where features say nearly the same."""
    if IS_CLASSIFICATION:
        return LogisticRegression(
            class_weight=CLASS_WEIGHT, max_iter=1000, tol=1e-3, random_state=RANDOM_STATE
        )
    return Ridge(alpha=10.0, random_state=RANDOM_STATE)


def forest_estimator(kind):
    """Random or extremely random trees, in a number that follows the table's shape."""
    how = {**forest_shape(len(X_train)), "max_features": tried_share(), "bootstrap": True}
    if IS_CLASSIFICATION:
        maker = ExtraTreesClassifier if kind == "extra" else RandomForestClassifier
        return maker(class_weight=CLASS_WEIGHT, random_state=RANDOM_STATE, **how)
    maker = ExtraTreesRegressor if kind == "extra" else RandomForestRegressor
    return maker(min_samples_leaf=2, random_state=RANDOM_STATE, **how)


def boosting_settings():
    """Slower learning than the defaults, by trees that see few columns at a split; simpler below 100 rows."""
    if len(X_train) < 100:
        return {"learning_rate": 0.1, "max_iter": 60, "max_leaf_nodes": 7, "min_samples_leaf": 5}
    return {
        "learning_rate": 0.04,
        "max_iter": 400,
        "max_leaf_nodes": 16,
        "min_samples_leaf": 10,
        "l2_regularization": 1.0,
        "max_features": few_columns(),
    }


def few_columns():
    """The share of the columns that boosting tries at a split: about six, 15 % at least."""
    return float(np.clip(6 / encoded_columns, 0.15, 0.6))


def boosting_estimator(class_weight=None, **settings):
    """Gradient boosting on histograms."""
    if not IS_CLASSIFICATION:
        return HistGradientBoostingRegressor(random_state=RANDOM_STATE, **settings)
    if y_train.value_counts().min() < 50:  # to stop early, it would hold back a part with every class in it
        settings["early_stopping"] = False
    return HistGradientBoostingClassifier(class_weight=class_weight, random_state=RANDOM_STATE, **settings)


def library_candidate():
    """The name and estimator of a boosting library, if one is installed."""
    how = {"n_estimators": 200, "learning_rate": 0.05, "n_jobs": 1}
    try:
        import lightgbm

        how.update(
            num_leaves=15 if len(X_train) >= 100 else 5, verbose=-1, deterministic=True, force_row_wise=True
        )
        if IS_CLASSIFICATION:
            maker, how["class_weight"] = lightgbm.LGBMClassifier, CLASS_WEIGHT
        else:
            maker = lightgbm.LGBMRegressor
        return "LightGBM", maker(random_state=RANDOM_STATE, **how)
    except ImportError:
        pass
    try:
        import xgboost
    except ImportError:
        return None
    if IS_CLASSIFICATION and LABELS != list(range(len(LABELS))):
        return None  # it takes no other labels than 0, 1, 2 and so on
    maker = xgboost.XGBClassifier if IS_CLASSIFICATION else xgboost.XGBRegressor
    return "XGBoost", maker(max_depth=4, random_state=RANDOM_STATE, **how)


def make_candidates():
    """The candidates by name; boosting with its defaults is always one of them."""
    found = {
        LINEAR: model_of(linear_estimator()),
        FOREST: model_of(forest_estimator("random")),
        BOOSTING: model_of(boosting_estimator(CLASS_WEIGHT, **boosting_settings())),
        DEFAULTS: model_of(boosting_estimator(), log_target=False),
    }
    library = library_candidate()
    if library is not None:
        found[library[0]] = model_of(library[1])
    return found
'''

SEARCH = r'''
def settings_to_try(model):
    """Distributions of the settings that matter most for this kind of model."""
    prefix = "regressor__model__" if isinstance(model, TransformedTargetRegressor) else "model__"
    estimator, small = model.get_params()[prefix.removesuffix("__")], len(X_train) < 100
    if isinstance(estimator, Ridge):
        space = {"alpha": loguniform(0.01, 1000)}
    elif isinstance(estimator, LogisticRegression):
        space = {"C": loguniform(0.001, 100)}
    elif hasattr(estimator, "max_samples"):
        space = {
            "max_features": uniform(0.1, 0.7),
            "min_samples_leaf": randint(1, 8),
            "max_depth": randint(6, 31),
        }
    elif hasattr(estimator, "l2_regularization"):
        space = {
            "learning_rate": loguniform(0.02, 0.12),
            "max_iter": randint(30, 101) if small else randint(150, 501),
            "max_leaf_nodes": randint(3, 9) if small else randint(5, 26),
            "min_samples_leaf": randint(3, 11) if small else randint(5, 31),
            "l2_regularization": loguniform(0.01, 10),
            "max_features": uniform(0.5 * few_columns(), few_columns()),
        }
    else:  # a boosting library
        leaves = (
            {"num_leaves": randint(4, 32)}
            if hasattr(estimator, "num_leaves")
            else {"max_depth": randint(2, 7)}
        )
        space = {
            "learning_rate": loguniform(0.02, 0.2),
            "n_estimators": randint(100, 401),
            "colsample_bytree": uniform(0.3, 0.7),
            "reg_lambda": loguniform(0.01, 10),
            **leaves,
        }
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
    X, y = X_train.loc[rows], y_train[rows]
    search = RandomizedSearchCV(
        for_rows(model, len(rows)),
        settings_to_try(model),
        n_iter=settings,
        scoring=primary_worth,
        cv=folds_of(y, parts),
        random_state=RANDOM_STATE,
        n_jobs=jobs_for(X),
        refit=False,
    )
    with parallel_config("loky", inner_max_num_threads=1):
        search.fit(X, y)
    return clone(model).set_params(**search.best_params_)


def plain_settings(model):
    """The settings of a model's estimators that are plain values."""
    return {
        name.replace("regressor__", "").replace("model__", ""): value
        for name, value in model.get_params().items()
        if "model__" in name
        and isinstance(value, (int, float, str))
        and not isinstance(value, bool)
        and value not in ("deprecated", "warn")  # how scikit-learn says that a setting is not used
    }
'''
