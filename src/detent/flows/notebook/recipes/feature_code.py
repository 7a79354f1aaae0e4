"""Code that prepares features: everything that is learned from data is learned inside a pipeline."""

from __future__ import annotations

FEATURES = r'''
def columns_by_kind(X):
    """Sort the columns by how they are prepared: the strategy's word, as far as the values allow it."""
    kinds = {"numbers": [], "codes": [], "categories": [], "dates": [], "texts": []}
    planned = {
        column: kind
        for kind in ("numeric", "categorical", "datetime", "text")
        for column in feature_engineering_strategy[kind]
    }
    for column in X.columns:
        values = X[column]
        if pd.api.types.is_datetime64_any_dtype(values):
            kinds["dates"].append(column)
        elif pd.api.types.is_numeric_dtype(values):
            kinds["codes" if planned.get(column) == "categorical" else "numbers"].append(column)
        else:
            kinds["texts" if planned.get(column) == "text" else "categories"].append(column)
    return kinds


def build_features(X, interactions=False, imputing="median", scaler=StandardScaler, keep_best=None):
    """The preparation of the columns of X; nothing is learned before it is fitted on training rows.

    Only public classes and functions are used, so that the saved model loads without this notebook.
    """
    kinds, parts = columns_by_kind(X), []
    as_numbers = FunctionTransformer(methodcaller("astype", "float64"))
    impute = dict(strategy=imputing, add_indicator=True, keep_empty_features=True)
    # Levels that are rare in the training rows are grouped; a level never seen counts as rare, or as none.
    encode = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        min_frequency=max(2, min(50, round(0.01 * len(X)))),
        max_categories=30,
        sparse_output=False,
    )
    if kinds["numbers"]:
        parts.append(("numbers", make_pipeline(as_numbers, SimpleImputer(**impute), scaler()), kinds["numbers"]))
        if interactions:
            parts.append(
                (
                    "interactions",
                    make_pipeline(
                        as_numbers,
                        SimpleImputer(strategy=imputing, keep_empty_features=True),
                        scaler(),
                        SelectKBest(UNIVARIATE_SCORE, k=min(3, len(kinds["numbers"]))),
                        PolynomialFeatures(degree=2, include_bias=False),
                    ),
                    kinds["numbers"],
                )
            )
    if kinds["codes"]:
        common = SimpleImputer(strategy="most_frequent", keep_empty_features=True)
        parts.append(("codes", make_pipeline(as_numbers, common, encode), kinds["codes"]))
    if kinds["categories"]:
        parts.append(
            (
                "categories",
                make_pipeline(
                    FunctionTransformer(methodcaller("map", str, na_action="ignore")),
                    FunctionTransformer(methodcaller("astype", object)),
                    FunctionTransformer(methodcaller("fillna", np.nan)),
                    SimpleImputer(strategy="most_frequent", add_indicator=True, keep_empty_features=True),
                    encode,
                ),
                kinds["categories"],
            )
        )
    if kinds["dates"]:
        pieces = ["year", "month", "day_of_week"]
        if any((X[column].dt.hour > 0).any() for column in kinds["dates"]):
            pieces.append("hour")
        for piece in pieces:
            parts.append(
                (
                    piece,
                    make_pipeline(
                        FunctionTransformer(methodcaller("apply", attrgetter(f"dt.{piece}"))),
                        SimpleImputer(**impute),
                        scaler(),
                    ),
                    kinds["dates"],
                )
            )
    for number, column in enumerate(kinds["texts"]):
        parts.append(
            (
                f"words_{number}",
                make_pipeline(
                    FunctionTransformer(methodcaller("astype", object)),
                    FunctionTransformer(methodcaller("fillna", "")),
                    TfidfVectorizer(max_features=100, token_pattern=r"(?u)\b\w+\b"),
                ),
                column,
            )
        )
    steps = [("columns", ColumnTransformer(parts, sparse_threshold=0))]
    if keep_best:
        steps += [("varying", VarianceThreshold()), ("best", SelectKBest(UNIVARIATE_SCORE, k=keep_best))]
    return Pipeline(steps)


def encoded_width(X):
    """How many numbers a row becomes."""
    some = X.iloc[:: max(1, len(X) // 5000)]
    return build_features(some).fit_transform(some).shape[1]
'''
