"""N-71: names that nothing defines are found before anything runs."""

import pytest

from detent.flows.notebook.measuring.undefined_names import undefined_names


def names(*sources, known=()):
    return [problem.name for problem in undefined_names(sources, known)]


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("print(frame)", ["frame"]),
        ("frame['x'] = other['y']", ["frame", "other"]),
        ("total += 1", ["total"]),
        ("print(frame)\nframe = 1", ["frame"]),  # used before it is assigned
        ("frame = frame.dropna()", ["frame"]),
        ("for row in rows:\n    pass", ["rows"]),
        ("def f(a):\n    return a + b", ["b"]),
        ("f = lambda v: v + missing", ["missing"]),
        ("def f(a=default):\n    pass", ["default"]),
        ("@decorator\ndef f():\n    pass", ["decorator"]),
        ("class A(Base):\n    x = y", ["Base", "y"]),
        ("[x + y for x in rows]", ["rows", "y"]),
        ("[y for x in [1] for y in x if z]", ["z"]),
        ("{k: w for k in [1]}", ["w"]),
        ("with opener() as f:\n    pass", ["opener"]),
        ("try:\n    pass\nexcept Oops:\n    pass", ["Oops"]),
        ("f'{frame!r:>{width}}'", ["frame", "width"]),
        ("del frame", ["frame"]),
        ("a = 1\ndel a\nprint(a)", ["a"]),
        ("np.mean([1])", ["np"]),
        ("x: Frame = 1", ["Frame"]),
        ("match value:\n    case Point(x=0):\n        pass", ["value", "Point"]),
        ("def f():\n    def g():\n        return deep\n    return g", ["deep"]),
        ("print([x for x in [1]], x)", ["x"]),
        ("if frame is None:\n    frame = 1", ["frame"]),
    ],
)
def test_a_name_that_nothing_defines_is_found(source, missing):
    assert sorted(names(source)) == sorted(missing)


@pytest.mark.parametrize(
    "source",
    [
        "print(len('a'), __name__, Exception)",
        "display(_)",
        "import numpy as np\nnp.mean([1])",
        "import os.path\nos.getcwd()",
        "from math import *\nprint(sin(1))",
        "def f():\n    return g()\ndef g():\n    return 1\nf()",
        "def f(n):\n    return f(n - 1)",
        "def f():\n    x = 1\n    def g():\n        return x\n    return g",
        "def f(*args, key=None, **rest):\n    return args, key, rest",
        "class A:\n    x = 1\n    y = x\n    def m(self):\n        return self",
        "rows = [[1]]\n[y for x in rows for y in x]",
        "[seen := x for x in [1]]\nprint(seen)",
        "try:\n    import lightgbm\nexcept ImportError as error:\n    lightgbm = None\n    print(error)",
        "if True:\n    a = 1\nelse:\n    b = 2\nprint(a, b)",
        "with open('a') as f, open('b') as g:\n    f, g",
        "for i, (a, b) in enumerate([]):\n    i, a, b\nelse:\n    pass",
        "match [1, 2]:\n    case [first, *rest]:\n        first, rest",
        "match {}:\n    case {'a': one, **others}:\n        one, others",
        "def f():\n    global made\n    made = 1\nf()\nprint(made)",
        "a, *b = [1, 2]\na, b",
        "x = y = 1\nx, y",
        "sorted([1], key=lambda v: (w := v))",
        "%matplotlib inline\nx = 1\nprint(x)",
        "lambda: later\nlater = 1",
        "async def f():\n    async with a() as b:\n        return b\nasync def a():\n    pass",
    ],
)
def test_what_is_defined_is_not(source):
    assert names(source) == []


def test_earlier_cells_and_what_is_known_define():
    assert names("import pandas as pd", "frame = pd.DataFrame(data)", known={"data"}) == []
    assert names("print(frame)", "frame = 1") == ["frame"]


def test_a_function_may_use_what_a_later_cell_of_the_round_defines():
    assert names("def f():\n    return helper()", "def helper():\n    return 1", "f()") == []


def test_the_place_and_the_nearest_name_are_told():
    (problem,) = undefined_names(["x = 1", "y = 2\nprint(df_clean)"], {"df_cleaned"})
    assert (problem.cell, problem.line) == (1, 2)
    assert problem.message == "'df_clean' is not defined. Did you mean 'df_cleaned'?"


def test_what_is_no_python_is_left_to_the_policy():
    assert names("def f(:") == []
