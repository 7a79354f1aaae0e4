"""Columns that say to whom or what several rows belong, so that these rows must not be parted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from detent.flows.notebook.domain.column_kinds import is_whole
from detent.flows.notebook.domain.column_names import name_words, singular
from detent.flows.notebook.domain.phrases import NAMELESS, columns_beside_new
from detent.flows.notebook.domain.text_values import is_text

if TYPE_CHECKING:
    import pandas as pd

OWNERS = frozenset(
    ("patient", "customer", "client", "subject", "household", "user", "person", "participant", "respondent",
     "member", "student", "employee", "account", "family", "donor")
)  # fmt: skip
ID_ENDS = frozenset(("id", "ids", "uuid", "guid", "identifier", "key"))
KINDS_OF_THINGS = frozenset(
    ("type", "class", "category", "status", "kind", "gender", "sex", "level", "grade")
)
"""What has an id of this name is a kind, not somebody: `type_id`."""
SAMPLE = 5000
FEWEST_PAIRS = 50
"""Rows beside one of the same group, in the sample, without which nothing is told of a column."""
FEWEST_CONSTANT = 2


@dataclass(frozen=True, slots=True)
class Group:
    """A column by which rows belong together."""

    column: str
    why: str


def find_groups(problem: str, table: pd.DataFrame, target: str) -> tuple[Group, ...]:
    """The columns by which rows belong together, the one that the problem itself names first."""
    columns = [str(name) for name in table.columns if name != target]
    asked = [name for name in columns_beside_new(problem, columns) if repeats(table[name])]
    groups = [Group(name, f"the problem asks about '{name}' that are not in the table") for name in asked]
    named = [name for name in columns if name not in asked and _is_owner(name) and repeats(table[name])]
    groups += [
        Group(name, f"'{name}' repeats and is named like an id") for name in _coarsest_first(table, named)
    ]
    return tuple(groups)


def repeats(series: pd.Series) -> bool:
    """Whether a column can name groups: text or whole numbers, of which some occur again."""
    if not (is_text(series) or is_whole(series)):
        return False
    present = series.dropna()
    return bool(2 <= present.nunique() < len(present))


def share_is_possible(series: pd.Series, share: float, slack: float = 0.1) -> bool:
    """Whether whole groups can be held out whose rows come near a share of all."""
    sizes = series.value_counts(dropna=False).tolist()
    rows = len(series)
    if len(sizes) > 200:
        return bool(sizes[0] <= (1 - share + slack) * rows)
    reachable = 1
    for size in sizes:
        reachable |= reachable << size
    low, high = int((share - slack) * rows) + 1, int((share + slack) * rows)
    return bool(reachable >> low & ((1 << max(0, high - low + 1)) - 1))


def columns_with_constants(table: pd.DataFrame, target: str) -> dict[str, tuple[str, ...]]:
    """Repeating columns within which several others never change, each with those others.

    Such a column may name what rows belong to, though its name does not say so.
    """
    import numpy as np

    names = [name for name in table.columns if name != target]
    sample = table[names]
    if len(sample) > SAMPLE:
        sample = sample.sample(SAMPLE, random_state=0)
    codes = np.column_stack([_codes(sample[name]) for name in names]) if names else np.empty((len(sample), 0))
    varied = [place for place in range(len(names)) if len(np.unique(codes[:, place])) > 1]
    found: dict[str, tuple[str, ...]] = {}
    for place in varied:
        if not repeats(sample[names[place]]):
            continue
        order = np.argsort(codes[:, place], kind="stable")
        same = codes[order[1:], place] == codes[order[:-1], place]
        if same.sum() < min(FEWEST_PAIRS, len(sample) // 4) or (~same).sum() < 4:
            continue
        left, right = order[:-1][same], order[1:][same]
        # A few pairs rule most columns out; the others are compared in all.
        few = slice(0, FEWEST_PAIRS)
        alike = np.flatnonzero((codes[left[few]] == codes[right[few]]).all(axis=0))
        alike = alike[(codes[np.ix_(left, alike)] == codes[np.ix_(right, alike)]).all(axis=0)]
        unchanged = set(alike.tolist()) & set(varied)
        unchanged.discard(place)
        constant = [names[other] for other in sorted(unchanged) if not _is_renaming(codes, place, other)]
        constant = [other for other in constant if _is_constant_within(table, names[place], other)]
        if len(constant) >= FEWEST_CONSTANT:
            found[names[place]] = tuple(constant)
    return found


def _codes(series: pd.Series) -> Any:
    import pandas as pd

    return pd.factorize(series, use_na_sentinel=False)[0]


def _is_renaming(codes: Any, left: int, right: int) -> bool:
    """Whether two columns tell the same groups apart."""
    import numpy as np

    pairs = len(np.unique(codes[:, [left, right]], axis=0))
    return bool(pairs == len(np.unique(codes[:, left])) == len(np.unique(codes[:, right])))


def _is_constant_within(table: pd.DataFrame, group: str, column: str) -> bool:
    pairs = table[[group, column]].drop_duplicates()
    return bool(pairs[group].is_unique)


def _is_owner(name: str) -> bool:
    parts = [singular(word) for word in name_words(name)]
    kept = [word for word in parts if word not in NAMELESS]
    if kept and kept[-1] in KINDS_OF_THINGS:
        return False
    if parts and (parts[-1] in ID_ENDS or parts[0] in ID_ENDS):
        return True
    return len(kept) == 1 and kept[0] in OWNERS and not name_words(name)[0].endswith("s")


def _coarsest_first(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Households before their persons: keeping the former together keeps the latter together too."""
    return sorted(names, key=lambda name: int(table[name].nunique()))
