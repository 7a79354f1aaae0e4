"""Calls that draw random numbers without a seed: found by reading the cells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from detent.flows.notebook.measuring.code_problem import CodeProblem
from detent.flows.notebook.measuring.expressions import parse_cell

_SEEDS = frozenset({"random_state", "seed", "random_seed", "rng"})
"""Keywords that take a seed."""

_ESTIMATORS = re.compile(
    r"^((RandomForest|ExtraTrees?|GradientBoosting|HistGradientBoosting|DecisionTree|Bagging|AdaBoost|MLP|SGD"
    r"|Perceptron|PassiveAggressive|LGBM|XGB|XGBRF|CatBoost)(Classifier|Regressor|Ranker)?"
    r"|LGBM\w*|XGB\w*|CatBoost\w*|Perceptron|SGDOneClassSVM|RandomTreesEmbedding|IsolationForest"
    r"|KMeans|MiniBatchKMeans|BisectingKMeans|SpectralClustering|GaussianMixture|BayesianGaussianMixture"
    r"|TruncatedSVD|MiniBatchNMF|FastICA|DictionaryLearning|SparsePCA|MiniBatchSparsePCA|TSNE|UMAP|MDS"
    r"|LatentDirichletAllocation|FactorAnalysis|RBFSampler|Nystroem|GaussianRandomProjection"
    r"|SparseRandomProjection|BernoulliRBM|RANSACRegressor|TheilSenRegressor"
    r"|(Halving)?Randomi[sz]edSearchCV|HalvingRandomSearchCV|SMOTE\w*|RandomOverSampler|RandomUnderSampler)$"
)
_SPLITTERS = frozenset(
    {
        "train_test_split", "ShuffleSplit", "StratifiedShuffleSplit", "GroupShuffleSplit", "RepeatedKFold",
        "RepeatedStratifiedKFold",
    }
)  # fmt: skip
_SHUFFLING_SPLITTERS = frozenset({"KFold", "StratifiedKFold", "StratifiedGroupKFold"})
"""These draw only with `shuffle=True`."""
_FUNCTIONS = re.compile(
    r"^(permutation_importance|resample|mutual_info_(classif|regression)|make_(blobs|classification|regression"
    r"|moons|circles|friedman[123]|low_rank_matrix|sparse_\w+|multilabel_classification|gaussian_quantiles)"
    r"|ParameterSampler|permutation_test_score)$"
)
_NUMPY_QUIET = frozenset(
    {"seed", "get_state", "set_state", "Generator", "SeedSequence", "PCG64", "MT19937", "Philox"}
)
_NUMPY_MAKERS = frozenset({"default_rng", "RandomState", "PCG64", "MT19937", "Philox", "SFC64"})
_STANDARD_QUIET = frozenset({"seed", "getstate", "setstate"})
_STANDARD_MAKERS = frozenset({"Random"})


def unseeded_calls(sources: Sequence[str]) -> tuple[CodeProblem, ...]:
    """The random calls without a seed, in the order of the cells.

    Splitters, estimators and `sample` need a seed of their own, one that is not None. A call of
    `numpy.random` or `random` itself needs their `seed` in the same cell before it: what other cells drew
    meanwhile must not change it.
    """
    modules: dict[str, str] = {}
    problems: list[CodeProblem] = []
    for cell, source in enumerate(sources):
        try:
            tree = parse_cell(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        problems.extend(_in_cell(tree, cell, modules))
    return tuple(problems)


def _in_cell(tree: ast.Module, cell: int, names: dict[str, str]) -> Iterator[CodeProblem]:
    """The unseeded calls of a cell; `names` are what its imports and those before it are called."""
    for node in ast.walk(tree):
        _take_import(node, names)
    seeded_dicts = _dicts_with_seed(tree)
    seeded: set[str] = set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        path = _path(call.func, names)
        module, _, name = path.rpartition(".")
        if module in ("numpy.random", "random"):
            if name == "seed":
                (seeded.add if call.args and not _is_none(call.args[0]) else seeded.discard)(module)
            elif not _is_quiet(module, name, call) and module not in seeded:
                yield _problem(call, cell, path)
        elif _needs_seed(path, name, call) and not _has_seed(call, seeded_dicts):
            yield _problem(call, cell, name)


def _problem(call: ast.Call, cell: int, name: str) -> CodeProblem:
    return CodeProblem("unseeded", cell, call.lineno, name, f"'{name}' draws random numbers without a seed")


def _take_import(node: ast.AST, names: dict[str, str]) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                names[alias.asname] = alias.name
            else:
                first = alias.name.split(".")[0]
                names[first] = first
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            names[alias.asname or alias.name] = f"{node.module}.{alias.name}"


def _path(function: ast.expr, names: dict[str, str]) -> str:
    """The dotted name of what is called, imports resolved: `np.random.rand` is `numpy.random.rand`."""
    match function:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Attribute(value=value, attr=name):
            inner = _path(value, names)
            return f"{inner}.{name}" if inner else f"().{name}"
    return ""


def _is_quiet(module: str, name: str, call: ast.Call) -> bool:
    """Whether a call of a random module draws nothing, or has a seed of its own."""
    quiet, makers = (
        (_NUMPY_QUIET, _NUMPY_MAKERS) if module == "numpy.random" else (_STANDARD_QUIET, _STANDARD_MAKERS)
    )
    if name in makers:
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "seed")]
        return bool(given) and not _is_none(given[0])
    return name in quiet


def _needs_seed(path: str, name: str, call: ast.Call) -> bool:
    if name in _SHUFFLING_SPLITTERS:
        return any(keyword.arg == "shuffle" and not _is_false(keyword.value) for keyword in call.keywords)
    if name == "train_test_split":
        return not any(keyword.arg == "shuffle" and _is_false(keyword.value) for keyword in call.keywords)
    if name == "sample":
        # A frame's; not that of a generator made with a seed, which has no such method.
        return isinstance(call.func, ast.Attribute)
    if path == "sklearn.utils.shuffle":
        return True
    if name in ("DummyClassifier",):
        return any(
            keyword.arg == "strategy" and _text(keyword.value) in ("stratified", "uniform")
            for keyword in call.keywords
        )
    return bool(name in _SPLITTERS or _ESTIMATORS.match(name) or _FUNCTIONS.match(name))


def _has_seed(call: ast.Call, seeded_dicts: frozenset[str]) -> bool:
    for keyword in call.keywords:
        if keyword.arg in _SEEDS:
            return not _is_none(keyword.value)
        if keyword.arg is None:  # `**settings`
            if isinstance(keyword.value, ast.Name) and keyword.value.id in seeded_dicts:
                return True
            if _is_dict_with_seed(keyword.value):
                return True
    return False


def _dicts_with_seed(tree: ast.Module) -> frozenset[str]:
    """Names that a cell gives to a mapping with a seed in it, or puts a seed into."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_dict_with_seed(value):
                names.add(name)
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))], value=value
            ) if key in _SEEDS and not _is_none(value):
                names.add(name)
    return frozenset(names)


def _is_dict_with_seed(node: ast.expr) -> bool:
    match node:
        case ast.Dict(keys=keys, values=values):
            return any(
                isinstance(key, ast.Constant) and key.value in _SEEDS and not _is_none(value)
                for key, value in zip(keys, values, strict=True)
            )
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return any(keyword.arg in _SEEDS and not _is_none(keyword.value) for keyword in keywords)
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
