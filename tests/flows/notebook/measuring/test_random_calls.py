"""N-85: random calls without a seed are found and named."""

import pytest

from detent.flows.notebook.measuring.random_calls import unseeded_calls


def calls(*sources):
    return [problem.name for problem in unseeded_calls(sources)]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("train_test_split(X, y)", "train_test_split"),
        ("train_test_split(X, y, random_state=None)", "train_test_split"),
        ("ShuffleSplit(5)", "ShuffleSplit"),
        ("GroupShuffleSplit(n_splits=1)", "GroupShuffleSplit"),
        ("KFold(5, shuffle=True)", "KFold"),
        ("StratifiedKFold(5, shuffle=flag)", "StratifiedKFold"),
        ("RandomForestRegressor(n_estimators=10)", "RandomForestRegressor"),
        ("ensemble.ExtraTreesClassifier()", "ExtraTreesClassifier"),
        ("from sklearn.ensemble import RandomForestRegressor as R\nR()", "RandomForestRegressor"),
        ("HistGradientBoostingRegressor()", "HistGradientBoostingRegressor"),
        ("KMeans(3)", "KMeans"),
        ("RandomizedSearchCV(model, grid)", "RandomizedSearchCV"),
        ("lgb.LGBMRegressor()", "LGBMRegressor"),
        ("xgboost.XGBClassifier(n_jobs=2)", "XGBClassifier"),
        ("permutation_importance(model, X, y)", "permutation_importance"),
        ("resample(X)", "resample"),
        ("from sklearn.utils import shuffle\nshuffle(X)", "shuffle"),
        ("frame.sample(5)", "sample"),
        ("frame.groupby('a').sample(frac=0.5, random_state=None)", "sample"),
        ("import numpy as np\nnp.random.rand(3)", "numpy.random.rand"),
        ("import numpy\nnumpy.random.shuffle(x)", "numpy.random.shuffle"),
        ("import numpy.random as nr\nnr.normal()", "numpy.random.normal"),
        ("from numpy import random\nrandom.choice(x)", "numpy.random.choice"),
        ("from numpy.random import normal\nnormal()", "numpy.random.normal"),
        ("import numpy as np\nrng = np.random.default_rng()", "numpy.random.default_rng"),
        ("import numpy as np\nrng = np.random.default_rng(None)", "numpy.random.default_rng"),
        ("import numpy as np\nnp.random.RandomState()", "numpy.random.RandomState"),
        ("import numpy as np\nnp.random.seed()\nnp.random.rand()", "numpy.random.rand"),
        ("import numpy as np\nnp.random.rand()\nnp.random.seed(1)", "numpy.random.rand"),
        ("import random\nrandom.choice([1])", "random.choice"),
        ("import random\nrandom.Random()", "random.Random"),
        ("RandomForestRegressor(**settings)", "RandomForestRegressor"),
        ("settings = {'random_state': None}\nRandomForestRegressor(**settings)", "RandomForestRegressor"),
        ("DummyClassifier(strategy='stratified')", "DummyClassifier"),
    ],
)
def test_a_call_without_a_seed_is_named(source, name):
    assert calls(source) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "train_test_split(X, y, random_state=RANDOM_STATE)",
        "train_test_split(X, y, random_state=0)",
        "train_test_split(X, y, shuffle=False)",
        "KFold(5)",
        "KFold(5, shuffle=False)",
        "KFold(5, shuffle=True, random_state=42)",
        "GroupKFold(5)",
        "RandomForestRegressor(random_state=42)",
        "catboost.CatBoostRegressor(random_seed=42)",
        "Ridge()",
        "LogisticRegression(max_iter=1000)",
        "StandardScaler()",
        "DummyRegressor()",
        "DummyClassifier(strategy='most_frequent')",
        "frame.sample(5, random_state=42)",
        "import numpy as np\nnp.random.seed(42)\nnp.random.rand(3)",
        "import numpy as np\nrng = np.random.default_rng(42)\nrng.normal(size=3)\nrng.choice(x)",
        "import numpy as np\nrng = np.random.default_rng(seed=RANDOM_STATE)",
        "import random\nrandom.seed(1)\nrandom.sample([1], 1)",
        "settings = {'random_state': 42}\nRandomForestRegressor(**settings)",
        "settings = dict(random_state=42)\nRandomForestRegressor(**settings)",
        "settings['random_state'] = 42\nRandomForestRegressor(**settings)",
        "RandomForestRegressor(**{'random_state': 1})",
        "clone(model)",
        "def sample(x):\n    return x\nsample(1)",
        "text = 'train_test_split(X, y)'",
        "x = (",
    ],
)
def test_a_seeded_call_and_one_that_draws_nothing_are_not(source):
    assert calls(source) == []


def test_a_seed_of_another_cell_does_not_count_for_the_module_itself():
    """What other cells drew in between would change the numbers."""
    assert calls("import numpy as np\nnp.random.seed(42)", "np.random.rand(3)") == ["numpy.random.rand"]


def test_imports_of_earlier_cells_tell_what_a_name_stands_for():
    assert calls("import numpy as npy", "npy.random.rand(3)") == ["numpy.random.rand"]
    assert calls("class random:\n    pass", "x = 1") == []


def test_the_cell_and_line_are_told():
    (problem,) = unseeded_calls(["x = 1", "y = 2\n\nframe.sample(5)"])
    assert (problem.cell, problem.line, problem.code) == (1, 3, "unseeded")
