"""Code that holds rows out, once, and deals the training rows into folds by the same rule."""

from __future__ import annotations

SPLIT = r'''
COARSE = "of which too few are distinct to keep equal ones together"


def in_strata(labels, least=2):
    """Number the classes; a class with fewer than `least` rows joins the largest one."""
    counts = labels.value_counts()
    rare = counts.index[counts < least]
    merged = labels.where(~labels.isin(rare), counts.index[0])
    return pd.Series(pd.factorize(merged, sort=True)[0], index=labels.index)


def row_identity(columns):
    """A number per row: rows that are equal in all these columns have the same one."""
    return pd.util.hash_pandas_object(df_typed[columns], index=False)


def rows_that_belong_together(columns):
    """Number the units of rows of which no part may be held out alone, and say what they are."""
    single = pd.Series(np.arange(len(df_typed)), index=df_typed.index)
    if split["kind"] == "time":
        return single, "single rows"
    if split["kind"] == "group":
        codes = pd.Series(pd.factorize(df_typed[split["column"]])[0], index=df_typed.index)
        # A row that names no group is a group of its own.
        return codes.where(codes >= 0, codes.max() + 1 + single), f"rows of one {split['column']}"
    equal = pd.Series(pd.factorize(row_identity([*columns, target_column]))[0], index=df_typed.index)
    if equal.is_unique:
        return single, "single rows"
    if equal.nunique() < 20 or equal.value_counts().iloc[0] > 0.4 * len(equal):
        return single, f"single rows, {COARSE}"
    if IS_CLASSIFICATION:
        # Where rows with the same features often differ in their class, the table is coarse. Parting them by their
        # class would show the model the wrong answer for each held-out row, so all of them stay together.
        alike = pd.Series(pd.factorize(row_identity(columns))[0], index=df_typed.index)
        contested = df_typed[target_column].groupby(alike).transform("nunique") > 1
        if (
            contested.mean() > 0.1
            and alike.nunique() >= 10
            and alike.value_counts().iloc[0] <= 0.4 * len(alike)
        ):
            return alike, "rows with the same features"
    return equal, "equal rows"


def draw_units(units, strata, share, seed):
    """Choose units at random until their rows make up `share` of every stratum."""
    rng = np.random.default_rng(seed)
    main_stratum = pd.crosstab(units, strata).idxmax(axis=1)
    # What is the only unit with a class stays where the model can learn from it.
    needed = units.groupby(strata).transform("nunique") == 1
    sizes = units.value_counts().sort_index().drop(units[needed].unique())
    chosen, room = [], 0.0
    for stratum in sorted(main_stratum.unique()):
        inside = sizes[main_stratum[sizes.index] == stratum]
        room += share * inside.sum()
        for unit, size in inside.iloc[rng.permutation(len(inside))].items():
            if size <= room:
                chosen.append(unit)
                room -= size
    # A few large groups may fit badly: come as near to the share as they allow.
    missing = share * len(units) - units.isin(chosen).sum()
    while missing > 0.02 * len(units) and len(chosen) < len(sizes) - 1:
        rest = sizes.drop(chosen)
        nearest = (rest - missing).abs().idxmin()
        if abs(rest[nearest] - missing) >= missing and chosen:
            break
        chosen.append(nearest)
        missing -= rest[nearest]
    return units.isin(chosen)


def split_rows(units, share, seed):
    """The index labels of the training rows and of the hold-out."""
    labels = df_typed[target_column]
    if split["kind"] == "time":
        # Rows without a date count as the earliest. Rows of one moment stay on one side if that is possible.
        when = df_typed[split["column"]].sort_values(kind="stable", na_position="first")
        cut = round(len(when) * (1 - share))
        later = when >= when.iloc[cut] if pd.notna(when.iloc[cut]) else when.notna()
        if abs(later.mean() - share) > 0.04:
            later = pd.Series(np.arange(len(when)) >= cut, index=when.index)
        return when.index[~later], when.index[later]
    strata = in_strata(labels, least=1) if IS_CLASSIFICATION else pd.Series(0, index=labels.index)
    if units.is_unique:
        single = strata.groupby(strata).transform("size") == 1 if IS_CLASSIFICATION else strata != 0
        common = strata[~single]
        if common.nunique() <= min(share, 1 - share) * len(common) - 1:
            train, test = train_test_split(
                common.index,
                test_size=share,
                random_state=seed,
                stratify=common if IS_CLASSIFICATION else None,
            )
            # A class with one row stays among the training rows.
            return train.append(strata.index[single]), test
    held_out = draw_units(units, strata, share, seed)
    return units.index[~held_out], units.index[held_out]


def folds_of(labels, parts):
    """Positions of training and validation rows, by the rule of the hold-out."""
    positions = np.arange(len(labels))
    if split["kind"] == "time":
        return list(TimeSeriesSplit(n_splits=parts).split(positions))
    together = units.loc[labels.index].to_numpy()
    strata = in_strata(labels, parts).to_numpy() if IS_CLASSIFICATION else np.zeros(len(labels), dtype=int)
    if len(np.unique(together)) < parts:
        chooser = GroupShuffleSplit(
            n_splits=parts, test_size=max(evaluation_framework["test_size"], 0.3), random_state=RANDOM_STATE
        )
        pairs = list(chooser.split(positions, groups=together))
    elif len(np.unique(together)) < len(together) <= 20_000:
        dealer = StratifiedGroupKFold(parts, shuffle=True, random_state=RANDOM_STATE)
        pairs = list(dealer.split(positions, strata, together))
    elif len(np.unique(together)) < len(together):
        part = deal_into_parts(together, strata, parts)
        pairs = [(positions[part != number], positions[part == number]) for number in range(parts)]
    elif IS_CLASSIFICATION and pd.Series(strata).value_counts().min() >= parts:
        pairs = list(StratifiedKFold(parts, shuffle=True, random_state=RANDOM_STATE).split(positions, strata))
    else:
        pairs = list(KFold(parts, shuffle=True, random_state=RANDOM_STATE).split(positions))
    if not IS_CLASSIFICATION:
        return pairs
    # The only row of a class is trained with in every fold: nothing else could tell the model of the class.
    only = np.flatnonzero(labels.groupby(labels).transform("size").to_numpy() == 1)
    return [(np.union1d(train, only), np.setdiff1d(valid, only)) for train, valid in pairs]


def deal_into_parts(together, strata, parts):
    """Give every unit to the part with the fewest rows of its stratum so far, large units first."""
    rng = np.random.default_rng(RANDOM_STATE)
    numbers, first, sizes = np.unique(together, return_index=True, return_counts=True)
    order = rng.permutation(len(numbers))
    order = order[np.argsort(-sizes[order], kind="stable")]
    held = np.zeros((strata.max() + 1, parts))
    part_of_unit = np.zeros(len(numbers), dtype=int)
    for unit in order:
        stratum = strata[first[unit]]
        part = np.argmin(held[stratum] + 1e-6 * held.sum(axis=0))
        part_of_unit[unit] = part
        held[stratum, part] += sizes[unit]
    return part_of_unit[np.searchsorted(numbers, together)]
'''
