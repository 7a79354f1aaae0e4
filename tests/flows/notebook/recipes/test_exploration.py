"""Stage 3: what is measured and drawn. N-92: six charts or more, none blank, each titled, axes named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from scipy.stats import spearmanr

from tests.flows.notebook.recipes import tables
from tests.flows.notebook.recipes.notebooks import COLLECTION, EXPLORATION, INTEGRITY, Notebook, notebook

STATE, INQUIRY, INSIGHTS, CONSOLIDATION = EXPLORATION


class Charts:
    """What was written on the charts that were saved."""

    def __init__(self) -> None:
        self.titles: dict[str, list[str]] = {}
        self.axes: dict[str, list[tuple[str, str]]] = {}

    def look(self, figure, path) -> None:
        name = Path(str(path)).name
        above = figure.get_suptitle()
        self.titles[name] = [text for text in (above, *(axis.get_title() for axis in figure.axes)) if text]
        self.axes[name] = [
            (axis.get_xlabel(), axis.get_ylabel()) for axis in figure.axes if axis.get_label() != "<colorbar>"
        ]


@pytest.fixture(scope="module")
def charts():
    """Every chart that is saved by the tests of this module, looked at while it is saved."""
    seen, save = Charts(), Figure.savefig

    def savefig(figure, path, **options):
        seen.look(figure, path)
        save(figure, path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield seen


def explored(folder, table, problem, **options) -> Notebook:
    return notebook(folder, table, problem, **options).cook(*COLLECTION, *INTEGRITY, *EXPLORATION)


def looked_at(charts, folder, table, problem, **options):
    """A notebook, and what is written on its charts."""
    charts.titles.clear()
    charts.axes.clear()
    book = explored(folder, table, problem, **options)
    return book, dict(charts.titles), dict(charts.axes)


@pytest.fixture(scope="module")
def customers(tmp_path_factory, charts):
    table = tables.customers(200, share=0.05)
    table.loc[::4, "spent"] = np.nan
    return looked_at(charts, tmp_path_factory.mktemp("customers"), table, "Predict churn")


@pytest.fixture(scope="module")
def odd(tmp_path_factory, charts):
    folder = tmp_path_factory.mktemp("odd")
    return looked_at(charts, folder, tables.odd_names(), "Predict it", target="'] + [1/0")


@pytest.fixture(scope="module")
def mushrooms(tmp_path_factory, charts):
    return looked_at(charts, tmp_path_factory.mktemp("mushrooms"), tables.mushrooms(), "Predict edible")


@pytest.mark.parametrize("fixture", ["customers", "odd", "mushrooms"])
class TestCharts:
    def test_there_are_six_or_more_and_none_is_blank(self, fixture, request):
        book, *_ = request.getfixturevalue(fixture)
        assert len(book["eda_charts"]) >= 6
        for chart in book["eda_charts"]:
            pixels = imread(book.folder / chart)[..., :3]
            assert pixels.shape[0] > 150, chart
            assert pixels.shape[1] > 500, chart
            assert (pixels < 0.9).any(axis=2).mean() > 0.01, chart

    def test_each_has_a_title_and_named_axes(self, fixture, request):
        book, titles, axes = request.getfixturevalue(fixture)
        assert set(titles) == {Path(chart).name for chart in book["eda_charts"]}
        for chart in titles:
            assert titles[chart], chart
            assert axes[chart], chart
            assert all(below for below, _ in axes[chart]), chart
            assert any(beside for _, beside in axes[chart]), chart

    def test_each_has_a_caption(self, fixture, request):
        book, *_ = request.getfixturevalue(fixture)
        assert set(book["chart_captions"]) == set(book["eda_charts"])

    def test_nothing_is_complained_about(self, fixture, request):
        book, *_ = request.getfixturevalue(fixture)
        assert book.warnings == []


class TestOddNames:
    """Part of N-111: odd column names run to the end."""

    def test_names_are_shown_as_they_are_not_as_formulas(self, odd):
        _, _, axes = odd
        written = {text for pairs in axes.values() for pair in pairs for text in pair}
        assert r"\$a\$ and \$b_" in written
        assert "x y" in written
        assert "<script>alert(1)</script>" in written

    def test_the_target_is_named_in_the_insights(self, odd):
        book, *_ = odd
        assert "`'] + [1/0`" in book["eda_insights"][0]


class TestFigures:
    def test_distributions_equal_what_pandas_says_of_the_unfilled_table(self, customers):
        book, *_ = customers
        spent = book["df_typed"]["spent"]
        figures = book["distribution_analysis"]["spent"]
        assert figures["median"] == pytest.approx(spent.median())
        assert figures["mean"] == pytest.approx(spent.mean())
        assert figures["missing"] == spent.isna().sum() > 0
        assert figures["skew"] == pytest.approx(spent.skew())
        assert book["distribution_analysis"]["plan"]["distinct"] == 3

    def test_correlations_are_spearmans(self, odd):
        book, *_ = odd
        matrix, table = book["correlation_matrix"], book["df_cleaned"]
        assert (matrix.index == matrix.columns).all()
        for left, right in [("'] + [1/0", 'a"b'), ("x\ny", "it's")]:
            assert matrix.loc[left, right] == pytest.approx(spearmanr(table[left], table[right])[0])

    def test_the_planted_relation_is_found_to_be_the_closest(self, odd, customers, mushrooms):
        assert next(iter(odd[0]["relation_strength"])) == 'a"b'
        assert next(iter(customers[0]["relation_strength"])) == "calls"
        assert next(iter(mushrooms[0]["relation_strength"])) == "odor"

    def test_categories_are_related_by_cramers_v(self, mushrooms):
        book, *_ = mushrooms
        matrix = book["correlation_matrix"]
        assert list(matrix.columns)[:2] == ["edible", "odor"]
        assert matrix.loc["edible", "odor"] > 3 * matrix.loc["edible", "cap"]
        assert np.allclose(matrix, matrix.T)
        assert "Cramér" in book["chart_captions"]["outputs/eda/05_correlation.png"]

    def test_strengths_of_columns_that_say_nothing_stay_near_zero(self, mushrooms):
        book, *_ = mushrooms
        assert book["relation_strength"]["gill"] < 0.2

    def test_texts_name_the_figures_of_the_notebook(self, customers):
        """N-72."""
        book, *_ = customers
        strongest, strength = next(iter(book["relation_strength"].items()))
        assert f"`{strongest}` ({strength:.2f})" in book.texts[INQUIRY]
        share = (book["df_typed"]["churn"] == "no").mean()
        assert f"the largest holds {share:.1%}" in book.texts[STATE]


class TestInsights:
    def test_an_unbalanced_target_and_gaps_are_told_with_figures(self, customers):
        book, *_ = customers
        insights = "\n".join(book["eda_insights"])
        assert "`yes`, 5.0%" in insights
        assert "`spent` (25.0%)" in insights
        assert any("Weight the classes" in advice for advice in book["modeling_recommendations"])

    def test_a_skewed_target_and_a_copy_of_it_are_told(self, tmp_path):
        table = tables.houses()
        table["price"] = np.exp(table["price"] / 60_000).round(2)
        table["thousands"] = table["price"] / 1000
        table["size_again"] = table["size"] * 2
        book = explored(tmp_path, table, "Predict price")
        insights = "\n".join(book["eda_insights"])
        assert "skewed to the right" in insights
        assert "Suspiciously close to the target, perhaps made from it: `thousands`" in insights
        assert "`size` and `size_again` (1.00)" in insights
        advice = "\n".join(book["modeling_recommendations"])
        assert "logarithm" in advice
        assert "leaks" in advice

    def test_advice_follows_the_question_and_leaves_out_columns_alone(self, tmp_path):
        rng = np.random.default_rng(3)
        table = tables.houses()
        table["order_id"] = [f"K{number:05d}" for number in rng.permutation(len(table))]
        table["town"] = [f"town {number}" for number in rng.integers(0, 40, len(table))]
        book = explored(tmp_path, table, "Predict price, MAE below 30000 and R2 above 0.2")
        assert "order_id" in book["relevance_report"]["excluded"]
        advice = "\n".join(book["modeling_recommendations"])
        assert "Judge by MAE, as the problem asks (beside it R²)" in advice
        assert "always answering the median" in advice
        assert "RMSE" not in advice
        assert "Group the rare levels of `town`" in advice
        assert "order_id" not in advice

    def test_the_summary_holds_every_insight_and_recommendation(self, customers):
        book, *_ = customers
        for line in [*book["eda_insights"], *book["modeling_recommendations"]]:
            assert line in book["eda_summary"]


class TestWideAndNarrow:
    def test_three_hundred_columns(self, tmp_path):
        rng = np.random.default_rng(1)
        table = pd.DataFrame(rng.normal(size=(40, 300)), columns=[f"f{n}" for n in range(300)])
        table["y"] = table["f7"] + 0.3 * rng.normal(size=40)
        book = notebook(tmp_path, table, "Predict y").cook(*COLLECTION, *INTEGRITY)
        book.cook(*EXPLORATION, iteration=3)  # with fewer panels
        assert next(iter(book["relation_strength"])) == "f7"
        assert book["correlation_matrix"].shape == (201, 201)

    @pytest.mark.parametrize(
        "values",
        [
            lambda rng: pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d"),
            lambda rng: [
                " ".join(rng.choice(["so", "it", "goes", "on"], rng.integers(6, 12))) for _ in range(40)
            ],
        ],
        ids=["date", "text"],
    )
    def test_a_single_feature_of_any_kind_gives_six_charts(self, tmp_path, values):
        rng = np.random.default_rng(2)
        table = pd.DataFrame({"only": values(rng), "y": np.tile(["u", "v"], 20)})
        book = explored(tmp_path, table, "Predict y")
        assert len(book["eda_charts"]) >= 6

    def test_a_retry_draws_what_is_missing(self, tmp_path):
        book = notebook(tmp_path, tables.houses(), "Predict price").cook(*COLLECTION, *INTEGRITY)
        book.cook(*EXPLORATION[:3], iteration=3)
        for chart in sorted((tmp_path / "outputs" / "eda").glob("*.png"))[2:]:
            chart.unlink()
        with pytest.raises(AssertionError, match="eda_charts"):
            book.cook(CONSOLIDATION)
        book.cook(CONSOLIDATION, iteration=3)
        assert len(book["eda_charts"]) == 6


def test_large_tables_are_drawn_from_a_seeded_sample_and_say_so(tmp_path):
    book = notebook(tmp_path, tables.houses(40), "Predict price").cook(*COLLECTION, *INTEGRITY)
    for name in ("df_typed", "df_cleaned"):
        book.names[name] = pd.concat([book[name]] * 60, ignore_index=True)
    book.cook(*EXPLORATION[:2], iteration=3)
    assert "a sample of 2,000 of 2,400 rows" in book.printed
    columns = book["inquired"].columns
    assert book["inquired"].equals(book["df_cleaned"].sample(2000, random_state=42)[columns])
