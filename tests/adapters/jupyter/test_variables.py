"""What the kernel is asked about its variables, without a trace in the notebook. N-35, N-39, N-40, N-103."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from detent.adapters.jupyter.cell_result import EvalResult, VariableInfo
from detent.adapters.jupyter.errors import KernelDied
from tests.adapters.jupyter.conftest import Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def value_of(notebook: Notebook, expression: str, timeout: float = 10.0) -> EvalResult:
    """The value of one expression."""
    return (await notebook.kernel.evaluate({"it": expression}, timeout=timeout))["it"]


async def facts_of(notebook: Notebook, name: str) -> VariableInfo:
    """What is known of one variable."""
    return (await notebook.kernel.inspect([name]))[name]


async def fact_after(notebook: Notebook, code: str) -> VariableInfo:
    """What is known of `it` after a cell."""
    assert (await notebook.run(code)).status == "ok"
    return await facts_of(notebook, "it")


class TestEvaluate:
    @pytest.mark.parametrize(
        ("expression", "truth"),
        [
            ("1 < 2", True),
            ("np.float64(1) < 2", True),
            ("np.array([True])[0]", True),
            ("1 > 2", False),
            ("1", False),
            ("(1 == 0, 3 > 2)", False),
            ("{'report': 1}", False),
            ("'True'", False),
            ("np.array([True])", False),
            ("np.True_ & np.False_", False),
            ("None", False),
        ],
    )
    async def test_true_alone_is_true(self, notebook: Notebook, expression: str, truth: bool) -> None:
        result = await value_of(notebook, expression)
        assert result.error is None
        assert result.truth is truth

    async def test_a_value_is_told_as_text_and_as_json(self, notebook: Notebook) -> None:
        await notebook.run("import numpy as np; scores = {'rmse': np.float64(2.5), 'n': np.int64(3)}")
        results = await notebook.kernel.evaluate(
            {"scores": "scores", "text": "f'**{scores[\"rmse\"]:.1f}** 数'", "model": "object"}, timeout=10
        )
        assert results["scores"].json == {"rmse": 2.5, "n": 3}
        assert results["scores"].text is None
        assert results["text"].text == "**2.5** 数"
        assert results["model"].json is None
        assert results["model"].value_repr == "<class 'object'>"

    async def test_each_expression_has_its_own_error(self, notebook: Notebook) -> None:
        results = await notebook.kernel.evaluate(
            {"a": "undefined_name > 1", "b": "1 / 0", "c": "x = 1", "d": "2 > 1", "e": "(lambda: exit(3))()"},
            timeout=10,
        )
        assert str(results["a"].error).startswith("NameError")
        assert str(results["b"].error).startswith("ZeroDivisionError")
        assert str(results["c"].error).startswith("SyntaxError")
        assert results["d"] == EvalResult("True", True, True)
        assert not results["e"].truth
        assert notebook.kernel.is_alive()

    @pytest.mark.parametrize(
        "expression",
        [
            "os.path.exists('.')",
            "math.isclose(1, 1)",
            "json.loads('true')",
            "Path('.').exists()",
            "all(np.isfinite(value) for value in [1.0])",
            "pd.Series([1]).notna().all()",
            "joblib.hash(1) == joblib.hash(1)",
        ],
    )
    async def test_usual_modules_are_known_and_do_not_leak(self, notebook: Notebook, expression: str) -> None:
        before = await notebook.kernel.names()
        assert (await value_of(notebook, expression)).truth
        assert await notebook.kernel.names() == before
        name = expression.partition("(")[0].partition(".")[0]
        if name not in before and name != "all":
            assert (await notebook.run(name)).status == "error"

    async def test_what_cells_define_comes_before_the_usual_modules(self, notebook: Notebook) -> None:
        await notebook.run("joblib = 'mine'")
        assert (await value_of(notebook, "joblib == 'mine'")).truth
        await notebook.run("del joblib")

    async def test_names_of_comprehensions_and_functions_are_found(self, notebook: Notebook) -> None:
        await notebook.run("limit = 3\ndef under(number): return number < limit")
        assert (await value_of(notebook, "all(under(number) and number < limit for number in (1, 2))")).truth

    async def test_nothing_is_left_in_the_notebook(self, notebook: Notebook) -> None:
        await notebook.run("kept = [1]")
        before = await notebook.text("print(sorted(globals()), len(In), len(Out))")
        names = await notebook.kernel.names()
        results = await notebook.kernel.evaluate(
            {
                "a": "(leaked := 5) == 5",
                "b": "print('seen') is None",
                "c": "[kept for _ in 'a'] == [[1]]",
            },
            timeout=10,
        )
        assert all(result.truth for result in results.values())
        await notebook.kernel.inspect(["kept", "leaked"])
        assert await notebook.kernel.names() == names
        after = await notebook.run("print(sorted(globals()), len(In), len(Out))")
        one_cell_more = await notebook.run("print(sorted(globals()), len(In), len(Out))")
        assert "seen" not in after.outputs[0].text
        assert "leaked" not in after.outputs[0].text
        counts = [cell.execution_count for cell in (after, one_cell_more)]
        assert counts[1] == (counts[0] or 0) + 1
        assert int(after.outputs[0].text.split()[-2]) == int(before.split()[-2]) + 1

    async def test_an_expression_that_runs_too_long_has_an_error(self, notebook: Notebook) -> None:
        results = await notebook.kernel.evaluate(
            {"slow": "sum(1 for _ in iter(int, 1))", "quick": "1 == 1"}, timeout=0.3
        )
        assert str(results["slow"].error).startswith("TimeoutError")
        assert results["quick"].truth

    async def test_an_expression_that_ends_the_kernel_has_an_error(self, notebook: Notebook) -> None:
        results = await notebook.kernel.evaluate({"end": "os._exit(1)", "next": "1 == 1"}, timeout=10)
        assert str(results["end"].error).startswith("KernelDied")
        assert str(results["next"].error).startswith("KernelDied")
        with pytest.raises(KernelDied):
            await notebook.kernel.inspect(["anything"])


class TestInspect:
    async def test_a_missing_name_does_not_exist(self, notebook: Notebook) -> None:
        names = [
            "nowhere",
            "",
            "a b",
            "__import__('os').abort()",
            "x\n",
            "数",
            "In",
            "_",
            "get_ipython",
            "__name__",
        ]
        found = await notebook.kernel.inspect(names)
        assert list(found) == names
        assert not any(facts.exists for facts in found.values())

    async def test_a_name_of_the_shell_exists_once_a_cell_has_defined_it(self, notebook: Notebook) -> None:
        assert not (await facts_of(notebook, "Out")).exists
        await notebook.run("shell_value, Out = Out, 5")
        assert (await facts_of(notebook, "Out")).json == 5
        await notebook.run("Out = shell_value")

    @pytest.mark.parametrize(
        ("code", "kind", "size", "json"),
        [
            ("it = {'rmse': 1.5}", "dict", 1, {"rmse": 1.5}),
            ("it = []", "list", 0, []),
            ("it = ''", "str", 0, ""),
            ("it = 3", "int", None, 3),
            ("it = True", "bool", None, True),
            ("it = (1, 'a')", "tuple", 2, [1, "a"]),
            ("it = float('nan')", "float", None, None),
            ("it = {1: 'a'}", "dict", 1, None),
            ("it = {'deep': {'key': {2}}}", "dict", 1, None),
            ("it = 'x' * 3000", "str", 3000, None),
            ("import numpy as np; it = np.int64(4)", "int64", 1, 4),
            ("it = lambda: 1", "function", None, None),
        ],
    )
    async def test_plain_values(
        self, notebook: Notebook, code: str, kind: str, size: int | None, json: Any
    ) -> None:
        facts = await fact_after(notebook, code)
        assert facts.exists
        assert (facts.type, facts.size, facts.json) == (kind, size, json)
        assert not facts.is_none

    async def test_none_is_told(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = None")
        assert (facts.exists, facts.is_none, facts.type) == (True, True, "NoneType")

    @pytest.mark.parametrize(
        ("code", "kind", "shape", "size"),
        [
            ("it = pd.DataFrame({'a': [1, 2], 'b': ['x', None]})", "DataFrame", (2, 2), 2),
            ("it = pd.DataFrame({'a': []})", "DataFrame", (0, 1), 0),
            ("it = pd.DataFrame(index=[1, 2, 3])", "DataFrame", (3, 0), 0),
            ("it = pd.Series([1.0, 2.0])", "Series", (2,), 2),
            ("it = np.zeros((5, 0))", "ndarray", (5, 0), 0),
            ("it = np.zeros(())", "ndarray", (), 1),
            ("from scipy import sparse; it = sparse.eye(3, format='csr')", "csr_matrix", (3, 3), 3),
        ],
    )
    async def test_tables_and_arrays(
        self, notebook: Notebook, code: str, kind: str, shape: tuple[int, ...], size: int
    ) -> None:
        facts = await fact_after(notebook, "import numpy as np, pandas as pd\n" + code)
        assert facts.type.removesuffix("_matrix").removesuffix("_array") == kind.removesuffix("_matrix")
        assert (facts.shape, facts.size) == (shape, size)
        assert facts.sha256 is not None

    async def test_a_long_value_is_described_in_few_words(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = list(range(5_000_000))")
        assert facts.size == 5_000_000
        assert len(facts.repr) <= 500
        assert facts.json is None

    async def test_the_fingerprint_of_a_plain_value_is_that_of_its_json(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = {'b': [1, 2.5], 'a': 'é'}")
        expected = hashlib.sha256('{"a":"é","b":[1,2.5]}'.encode()).hexdigest()
        assert facts.sha256 == expected

    async def test_a_model_has_no_fingerprint_and_is_not_pickled(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook,
            "class Model:\n    def __reduce__(self): return 1 / 0\nit = {'m': Model()}",
        )
        assert facts.exists
        assert facts.sha256 is None


class TestHostileValues:
    async def test_a_value_that_raises_whatever_is_asked_of_it(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook,
            "class Hostile:\n"
            "    def no(self, *more): raise SystemExit('no')\n"
            "    __repr__ = __len__ = __eq__ = __bool__ = __iter__ = __hash__ = __str__ = no\n"
            "    shape = __class__ = __dict__ = property(no)\n"
            "    def __getattr__(self, name): raise KeyboardInterrupt\n"
            "it = Hostile()",
        )
        assert facts.exists
        assert facts.type == "Hostile"
        assert facts.json is None
        assert notebook.kernel.is_alive()

    async def test_a_repr_that_raises_is_told(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook, "class Shy:\n    def __repr__(self): raise ValueError('no')\nit = Shy()"
        )
        assert facts.repr
        assert (await value_of(notebook, "it")).value_repr

    async def test_a_length_that_lies_does_not_fill_an_empty_list(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "class Full(list):\n    def __len__(self): return 5\nit = Full()")
        assert facts.size == 0
        assert facts.json == []

    async def test_a_length_below_zero_is_none(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "class Odd:\n    def __len__(self): return -1\nit = Odd()")
        assert facts.size is None

    async def test_an_object_whose_equality_is_an_array(self, notebook: Notebook) -> None:
        result = await value_of(notebook, "np.array([1, 2]) == 1")
        assert (result.truth, result.error) == (False, None)

    async def test_a_value_that_contains_itself(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = []; it.append(it)")
        assert (facts.size, facts.json, facts.sha256) == (1, None, None)

    async def test_a_dictionary_that_changes_what_it_holds(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook,
            "class Liar(dict):\n    def items(self): return [('rmse', 0.0)]\n    keys = items\n"
            "it = Liar(rmse=9.0)",
        )
        assert facts.json == {"rmse": 9.0}

    async def test_half_a_character(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = 'a\\ud800'")
        assert facts.size == 2
        assert facts.json == "a\ud800"
        facts.repr.encode()

    async def test_a_number_of_many_digits(self, notebook: Notebook) -> None:
        facts = await fact_after(notebook, "it = 10 ** 5000")
        assert facts.exists
        assert facts.json is None
        assert facts.sha256 is not None

    async def test_a_metaclass_that_lies_about_names(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook,
            "class Meta(type):\n    @property\n    def __name__(cls): raise ValueError\n"
            "class It(metaclass=Meta): pass\nit = It()",
        )
        assert facts.exists

    async def test_a_value_that_prints_when_looked_at(self, notebook: Notebook) -> None:
        await fact_after(
            notebook, "class Loud:\n    def __repr__(self): print('loud'); return 'x'\nit = Loud()"
        )
        assert await notebook.text("print('quiet')") == "quiet\n"

    async def test_a_value_that_takes_too_long_is_left_alone(self, notebook: Notebook) -> None:
        facts = await fact_after(
            notebook, "class Slow:\n    def __len__(self):\n        while True: pass\nit = Slow()"
        )
        assert facts.exists
        assert (facts.type, facts.size) == ("Slow", None)


class TestFingerprints:
    """Equal content gives equal fingerprints, other content others."""

    EQUAL = (
        ("pd.DataFrame({'a': [1.0, np.nan], 'b': ['x', None]})",) * 2,
        ("pd.DataFrame({'a': [1, 2]})", "pd.DataFrame({'a': [1, 2, 3]}).iloc[:2]"),
        ("np.arange(6).reshape(2, 3)", "np.asfortranarray(np.arange(6).reshape(2, 3))"),
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
        ("{'x', 'y', 'z'}", "{'z', 'y', 'x'}"),
        ("{'table': pd.Series([1.5])}",) * 2,
        ("pd.Categorical(['a', 'b'])",) * 2,
        ("[float('nan')]",) * 2,
    )
    DIFFERENT = (
        "pd.DataFrame({'a': [1, 2]})",
        "pd.DataFrame({'a': [1, 3]})",
        "pd.DataFrame({'a': [1.0, 2.0]})",
        "pd.DataFrame({'a': [True, False]})",
        "pd.DataFrame({'a': ['1', '2']})",
        "pd.DataFrame({'a': [1, '2']}, dtype=object)",
        "pd.DataFrame({'b': [1, 2]})",
        "pd.DataFrame({'a': [1, 2]}, index=[1, 0])",
        "pd.DataFrame({'a': [1, 2]}, index=pd.Index([0, 1], name='id'))",
        "pd.DataFrame({'a': [1.0, np.nan]})",
        "pd.DataFrame({'a': [1.0, np.inf]})",
        "pd.DataFrame({'a': [1, None]}, dtype='Int64')",
        "pd.DataFrame({'a': ['x', None]})",
        "pd.DataFrame({'a': ['x', '']})",
        "pd.DataFrame({'a': ['', 'x']})",
        "pd.DataFrame({'a': pd.Categorical(['x', 'y'])})",
        "pd.DataFrame({'a': pd.Categorical(['x', 'y'], ordered=True)})",
        "pd.DataFrame({'a': pd.to_datetime(['2024-01-01', '2024-01-02'])})",
        "pd.DataFrame({'a': pd.to_datetime(['2024-01-01', '2024-01-02'], utc=True)})",
        "pd.DataFrame({'a': pd.period_range('2024-01', periods=2, freq='M')})",
        "pd.DataFrame({'a': pd.interval_range(0, 2)})",
        "pd.DataFrame([[1, 2], [3, 4]], columns=['a', 'a'])",
        "pd.DataFrame([[1, 2], [3, 5]], columns=['a', 'a'])",
        "pd.DataFrame({'a': [1, 2]}, index=pd.MultiIndex.from_tuples([('x', 1), ('x', 2)]))",
        "pd.DataFrame({'a': [1, 2]}, index=pd.MultiIndex.from_tuples([('x', 1), ('y', 2)]))",
        "pd.Series([1, 2], name='a')",
        "np.array([1, 2])",
        "np.array([[1, 2]])",
        "np.array([1, 2], dtype='i4')",
        "np.array(['ab', 'c'])",
        "np.array(['a', 'bc'])",
        "np.array(['a\\x1fb', 'c'], dtype=object)",
        "np.array(['a', 'b\\x1fc'], dtype=object)",
        "np.ma.array([1, 2], mask=[True, False])",
        "np.ma.array([1, 2], mask=[False, True])",
        "np.array([(1, 2.0)], dtype=[('a', 'i4'), ('b', 'f8')])",
        "np.array([1 + 2j])",
        "[1, 2]",
        "[1.0, 2.0]",
        "[12]",
        "['1', '2']",
        "[[1], [2]]",
        "[[1, 2], []]",
        "{1: 2}",
        "{'1': 2}",
        "{1, 2}",
        "Path('a')",
        "Path('b')",
        "1 + 2j",
        "{'a': np.array([1])}",
        "{'a': np.array([2])}",
        "[float('inf')]",
        "[-float('inf')]",
    )

    async def test_equal_values(self, notebook: Notebook) -> None:
        code = "import numpy as np, pandas as pd\nfrom pathlib import Path\n"
        code += "\n".join(
            f"left{place} = {left}\nright{place} = {right}" for place, (left, right) in enumerate(self.EQUAL)
        )
        assert (await notebook.run(code)).status == "ok"
        names = [f"{side}{place}" for place in range(len(self.EQUAL)) for side in ("left", "right")]
        found = await notebook.kernel.inspect(names)
        for place, pair in enumerate(self.EQUAL):
            left, right = found[f"left{place}"], found[f"right{place}"]
            assert left.sha256 is not None, pair
            assert left.sha256 == right.sha256, pair
            assert left.comparison == right.comparison, pair

    async def test_different_values(self, notebook: Notebook) -> None:
        code = "import numpy as np, pandas as pd\nfrom pathlib import Path\n"
        code += "\n".join(f"value{place} = {text}" for place, text in enumerate(self.DIFFERENT))
        assert (await notebook.run(code)).status == "ok"
        found = await notebook.kernel.inspect([f"value{place}" for place in range(len(self.DIFFERENT))])
        by_digest: dict[str | None, str] = {}
        for place, text in enumerate(self.DIFFERENT):
            digest = found[f"value{place}"].sha256
            assert digest is not None, text
            assert digest not in by_digest, (text, by_digest.get(digest))
            by_digest[digest] = text

    async def test_a_large_table_is_read_quickly_and_changes_nothing(self, notebook: Notebook) -> None:
        await notebook.run(
            "import numpy as np, pandas as pd\nrng = np.random.default_rng(0)\n"
            "wide = pd.DataFrame(rng.normal(size=(20_000, 40)))\n"
            "wide['text'] = [f'row {n}' for n in range(20_000)]\nstate = repr(rng.bit_generator.state)"
        )
        facts = await facts_of(notebook, "wide")
        assert facts.shape == (20_000, 41)
        assert facts.comparison is not None
        assert len(str(facts.comparison)) < 10_000
        assert (await value_of(notebook, "repr(rng.bit_generator.state) == state")).truth


class TestNames:
    async def test_the_names_that_cells_defined(self, notebook: Notebook) -> None:
        await notebook.kernel.restart()
        await notebook.run(
            "import numpy as np\nfrom pathlib import Path\nrows = 3\n_hidden = 1\ndef f(): pass\n1"
        )
        assert await notebook.kernel.names() == {
            "np": "module",
            "Path": "type",
            "rows": "int",
            "f": "function",
        }
