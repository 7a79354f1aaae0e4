"""N-105: figures that nothing supports."""

import pytest

from detent.flows.notebook.measuring.figures import unsupported_figures


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("The table has 1460 rows.", "1460"),
        ("1460 rows", "1460"),
        ("It has 1,460 rows.", "1,460"),
        ("(1460)", "1460"),
        ("n=1460", "1460"),
        ("$181,000.", "181,000"),
        ("An R² of 0.87 was reached.", "0.87"),
        ("The error is 26,012.5 dollars.", "26,012.5"),
        ("About 85.8 % are right.", "85.8 %"),
        ("A score of .858", ".858"),
        ("around 27k rows", "27k"),
        ("3.1 million", "3.1 million"),
        ("1.5,2.5 and 0.8571", "1.5"),
        ("tolerance 1e-3", "1e-3"),
        ("- 3.7 on average", "3.7"),
    ],
)
def test_a_figure_without_evidence_is_named(text, figure):
    outputs = ["(2930, 82)\n", "rmse 26011.9\nr2 0.8571\n"]
    assert figure in unsupported_figures(text, outputs)


@pytest.mark.parametrize(
    "text",
    [
        "The table has 2930 rows and 82 columns.",
        "It has 2,930 rows, that is 2 930 or 2'930.",
        "R² is 0.8571, so 0.857 or 0.86 or 0.9.",
        "85.71 % or 85.7% of the variance, 86 percent.",
        "The error is 26011.9, 26,011.9 or 26012 dollars, 26k in short.",
        "It fell by -26,012.",
        "A score of .857",
        "### 3.1 Distribution\n1. first\n2) second",
        "We use 5 folds, 80/20, top 10 features and step_123.",
        "See [the docs](https://example.org/2024/123) and https://example.org/98765.",
        "x100 and R2 and 100th and v1a",
        "",
    ],
)
def test_a_figure_that_an_output_shows_at_its_precision_is_supported(text):
    assert unsupported_figures(text, ["(2930, 82)\n", "rmse 26011.9\nr2 0.8571\n"]) == ()


@pytest.mark.parametrize(
    ("text", "output", "supported"),
    [
        ("0.86", "0.8571", True),
        ("0.85", "0.8571", False),
        ("0.857", "0.8571", True),
        ("0.8572", "0.8571", False),
        ("26012", "26011.9", True),
        ("26011", "26011.9", False),
        ("26,000", "26011.9", False),  # written to the unit
        ("0.125", "0.1245", True),
        ("12.5 %", "0.1254", True),
        ("1.2e-05", "0.0000118", True),
        ("0.0", "1e-9", True),
        ("100200", "(100,200)", True),
        ("200.0", "(100,200)", True),
        ("0.52", "-0.5187", True),
    ],
)
def test_the_precision_is_that_of_the_text(text, output, supported):
    assert (unsupported_figures(text, [output]) == ()) is supported


def test_variables_sources_and_the_problem_are_evidence_too():
    text = "RMSE below 25,000 with 10 trees of 0.125 and a share of 0.333, 2930 rows"
    assert unsupported_figures(text, []) == ("25,000", "0.125", "0.333", "2930")
    variables = {"test_performance": {"rmse": [0.3333]}, "frame": "DataFrame 2930 x 82"}
    sources = ["model = GradientBoosting(learning_rate=0.125)"]
    assert unsupported_figures(text, [], variables, sources, "house price, RMSE < 25000") == ()


def test_a_figure_is_named_once():
    assert unsupported_figures("1460 and 1460", []) == ("1460",)


def test_much_evidence_is_quick_to_search():
    outputs = ["\n".join(str(number) for number in range(100_000, 200_000))]
    text = " ".join(str(number) for number in range(100_000, 101_000))
    assert unsupported_figures(text, outputs) == ()
    assert unsupported_figures("300123", outputs) == ("300123",)
