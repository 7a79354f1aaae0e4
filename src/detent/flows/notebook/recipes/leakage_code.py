"""Code that looks for leaks: columns that give the target away, and rows that are on both sides of the split."""

from __future__ import annotations

SINGLE_COLUMNS = r'''
def monotone_fit(x, y):
    """R² of the best rising or falling curve through the points, with and without the extreme targets."""
    best = (0.0, 0.0)
    usual = (y > y.quantile(0.01)) & (y < y.quantile(0.99))
    for rising in (True, False):
        fitted = IsotonicRegression(increasing=rising).fit_transform(x, y)
        whole = r2_score(y, fitted)
        if whole > best[0]:
            best = (whole, r2_score(y[usual], fitted[usual]) if y[usual].nunique() > 2 else whole)
    return best


def separates(x, y):
    """Whether a number tells every class of some size from every other one."""
    sizes = y.value_counts()
    classes = sorted(sizes.index[sizes >= 5])
    if not 2 <= len(classes) <= 20:
        return False
    for number, one in enumerate(classes):
        for other in classes[:number]:
            pair = y.isin([one, other])
            area = roc_auc_score(y[pair] == one, x[pair])
            if max(area, 1 - area) <= 0.999:
                return False
    return True


def one_to_one(x, y):
    """Whether every value of a column stands for one class and every class for one value."""
    sizes = y.value_counts()
    large = y.isin(sizes.index[sizes >= 2])
    x, y = x[large].astype(str), y[large]
    if y.nunique() < 2 or x.nunique() != y.nunique():
        return False
    table = pd.crosstab(x, y)
    at_its_class = table.to_numpy().max(axis=0) / table.sum(axis=0).to_numpy()
    return table.idxmax(axis=1).is_unique and at_its_class.min() > 0.999


def on_a_scale(values):
    """A column as numbers: dates as moments, texts by the number in them if all have one; else None."""
    if pd.api.types.is_datetime64_any_dtype(values):
        return values.astype("int64").astype(float)
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    written = values.astype(str).str.replace(r"(?<=\d)['’, ](?=\d)", "", regex=True)
    numbers = written.str.extract(r"^\s*(-?)\D*?(-?)(\d+(?:\.\d+)?|\.\d+)(?!\w)")
    if numbers[2].isna().any():
        return None
    signs = (numbers[0] + numbers[1]).str.contains("-").map({True: -1.0, False: 1.0})
    return numbers[2].astype(float) * signs


def columns_that_explain(X, y):
    """Columns that tell the target on their own, each with how well."""
    some = X.index[:: max(1, len(X) // 20000)]
    found = {}
    for column in X.columns:
        known = X.loc[some, column].dropna()
        labels = y[known.index]
        if len(known) < max(10, 0.2 * len(some)) or known.nunique() < 2:
            continue
        if IS_CLASSIFICATION and one_to_one(known, labels):
            found[column] = "its values map one to one onto the classes"
            continue
        numbers = on_a_scale(known)
        if numbers is None or numbers.nunique() < 2 or labels.nunique() < 2:
            continue
        if IS_CLASSIFICATION:
            if separates(numbers, labels):
                found[column] = "it separates the classes alone (AUC > 0.999)"
        else:
            whole, usual = monotone_fit(numbers, labels.astype(float))
            if whole > 0.99 and usual > 0.9:
                found[column] = f"a monotone curve of it alone gives the target (R² {whole:.4f})"
    return found
'''

COMBINATIONS = r'''
def linear_share(table, y):
    """R² of a linear model on rows that it was not fitted on."""
    predicted = np.empty(len(y))
    for train, valid in KFold(5, shuffle=True, random_state=RANDOM_STATE).split(table):
        model = LinearRegression().fit(table[train], y[train])
        predicted[valid] = model.predict(table[valid])
    return r2_score(y, predicted)


def fewest_that_add_up(X, y):
    """The fewest columns of numbers whose weighted sum is the target; empty if there are none."""
    table = X.fillna(X.median())
    table = table.loc[:, table.std() > 0]
    table = (table - table.mean()) / table.std()
    if table.shape[1] < 2 or len(table) < 20 or np.std(y) == 0:
        return []
    # Pairs: R² of every two columns at once, from the correlations; judged on the rows where both are known.
    among = np.corrcoef(table.to_numpy(), rowvar=False)
    with_target = np.array([np.corrcoef(table[column], y)[0, 1] for column in table])
    first, second = np.triu_indices(len(with_target), k=1)
    common = among[first, second]
    independent = np.abs(common) < 0.999999
    explained = np.where(
        independent,
        (
            with_target[first] ** 2
            + with_target[second] ** 2
            - 2 * with_target[first] * with_target[second] * common
        )
        / np.where(independent, 1 - common**2, 1.0),
        0.0,
    )
    for best in np.argsort(-explained)[:10]:
        pair = [table.columns[first[best]], table.columns[second[best]]]
        known = X[pair].notna().all(axis=1).to_numpy()
        if known.sum() >= max(20, 0.5 * len(X)):
            for columns in ([pair[0]], [pair[1]], pair):  # one of them may do
                if linear_share(X.loc[known, columns].to_numpy(), y[known]) > 0.9999:
                    return columns
    if table.shape[1] <= min(300, len(table) / 3):
        chosen = list(table.columns)
    else:  # More columns than rows or patience can bear: collect those that explain most of what is left.
        chosen, left = [], y - y.mean()
        while len(chosen) < min(20, len(table) // 5) and np.std(left) > 1e-9 * np.std(y):
            chosen.append(table.columns[np.argmax(np.abs(table.to_numpy().T @ left))])
            left = y - LinearRegression().fit(table[chosen], y).predict(table[chosen])
    if linear_share(table[chosen].to_numpy(), y) <= 0.9999:
        return []
    # Leave out one after the other, the lightest first, as long as the sum still comes out.
    weights = pd.Series(np.abs(LinearRegression().fit(table[chosen].to_numpy(), y).coef_), index=chosen)
    heavy = list(weights.index[weights > 1e-4 * weights.max()])
    if linear_share(table[heavy].to_numpy(), y) > 0.9999:
        chosen = heavy
    for column in weights[chosen].sort_values(kind="stable").index:
        fewer = [name for name in chosen if name != column]
        if fewer and linear_share(table[fewer].to_numpy(), y) > 0.9999:
            chosen = fewer
    return chosen


def fewest_that_part(X, y):
    """Two or three columns by which a straight line or plane parts the classes without an error."""
    y = y[y.groupby(y).transform("size") >= 10]
    table = X.loc[y.index].fillna(X.median())
    table = table.loc[:, table.std() > 0]
    if len(y) < 100 or y.nunique() < 2 or table.shape[1] < 2:
        return []
    table = (table - table.mean()) / table.std()
    folds = StratifiedKFold(5, shuffle=True, random_state=RANDOM_STATE)
    line = LogisticRegression(C=1000.0, max_iter=500, random_state=RANDOM_STATE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # On classes that can be parted the weights grow without end.
        wide = table.shape[1] > 50
        ranked = (
            table.columns[np.argsort(-f_classif(table, y)[0], kind="stable")[:50]] if wide else table.columns
        )
        if cross_val_score(line, table[ranked], y, cv=folds).mean() < 0.985:
            return []
        weight = np.abs(line.fit(table[ranked], y).coef_).max(axis=0)
        heaviest = ranked[np.argsort(-weight, kind="stable")[:8]]
        for size in (2, 3):
            for chosen in combinations(heaviest, size):
                columns = list(chosen)
                if line.fit(table[columns], y).score(table[columns], y) == 1.0:
                    if cross_val_score(line, table[columns], y, cv=folds).mean() >= 0.985:
                        return columns
    return []


def columns_that_combine(X, y):
    """The fewest columns that make up the target together, and how."""
    some = X.index[:: max(1, len(X) // 5000)]
    numbers = [column for column in X.columns if pd.api.types.is_numeric_dtype(X[column])]
    table, labels = X.loc[some, numbers].astype(float), y[some]
    if IS_CLASSIFICATION:
        sizes = labels.value_counts()
        for label in sorted(sizes.index[sizes >= 5])[:20]:
            chosen = fewest_that_add_up(table, (labels == label).to_numpy(dtype=float))
            if chosen:
                return chosen, f"a weighted sum tells whether a row is {str(label)!r}"
        return fewest_that_part(table, labels), "a straight line through them parts the classes"
    values = labels.to_numpy(dtype=float)
    chosen = fewest_that_add_up(table, values)
    if not chosen and (values > 0).all():
        positive = table.loc[:, (table > 0).sum() == table.notna().sum()]
        return fewest_that_add_up(
            np.log(positive), np.log(values)
        ), "the product of powers of them is the target"
    return chosen, "a weighted sum of them is the target (R² > 0.9999)"
'''

SPLIT_CHECKS = r'''
def leaks_of_the_split(X_train, X_test):
    """What must not be: rows or groups on both sides, the target among the features, values changed beforehand."""
    leaks = []
    shared = X_train.index.intersection(X_test.index)
    if len(shared):
        leaks.append(f"{len(shared)} rows are training and hold-out rows at once")
    if target_column in X_train.columns:
        leaks.append(f"the target {target_column!r} is among the features")
    by = df_typed[split["column"]] if split["column"] else None
    if split["kind"] == "group":
        both = set(by[X_train.index].dropna()) & set(by[X_test.index].dropna())
        if both:
            leaks.append(f"{len(both)} groups of {split['column']!r} stand on both sides of the split")
    if COARSE not in unit_reason:
        identity = row_identity([*features, *([] if by is None else [split["column"]]), target_column])
        doubled = identity[X_test.index].isin(identity[X_train.index])
        if split["kind"] == "time":  # the moment at which the split was cut may stand on both sides
            doubled &= by[X_test.index] != by[X_train.index].max()
        if doubled.any():
            leaks.append(f"{doubled.sum()} hold-out rows equal a training row")
    for name in X_train.columns:
        values = pd.concat([X_train[name], X_test[name]])
        if name in df_typed:
            changed = not values.equals(df_typed.loc[values.index, name])
        else:
            is_scale = pd.api.types.is_numeric_dtype(values) and len(values) > 2
            changed = is_scale and abs(values.mean()) < 1e-6 and abs(values.std() - 1) < 0.01
        if changed:
            leaks.append(f"{name!r} was changed before the split, by what all rows show")
    return leaks
'''
