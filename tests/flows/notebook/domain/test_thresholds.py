"""N-94: thresholds are read from sentences as people write them, and from nothing else."""

import pytest

from detent.flows.notebook.domain.problem import ProblemError
from detent.flows.notebook.domain.thresholds import metrics_named, read_thresholds

READ = [
    # The contract's own sentences.
    ("Build house price model, RMSE < 25000, R² > 0.85", "RMSE < 25000, R2 > 0.85"),
    ("R2 must not be below 0,850", "R2 >= 0.85"),
    ("Tell the species apart with 90% accuracy", "ACCURACY >= 0.9"),
    ("RMSE of $25,000 or less", "RMSE <= 25000"),
    ("RMSE and R² > 0.85", "R2 > 0.85"),
    ("Keep the score: R2 > 0.85.", "R2 > 0.85"),
    # Every comparison.
    ("RMSE < 25000", "RMSE < 25000"),
    ("RMSE <= 25000", "RMSE <= 25000"),
    ("RMSE ≤ 25000", "RMSE <= 25000"),
    ("R2 > 0.85", "R2 > 0.85"),
    ("R2 >= 0.85", "R2 >= 0.85"),
    ("R2 ≥ 0.85", "R2 >= 0.85"),
    ("R2≥.85", "R2 >= 0.85"),
    ("RMSE below 25000", "RMSE < 25000"),
    ("RMSE under 25000", "RMSE < 25000"),
    ("RMSE less than 25000", "RMSE < 25000"),
    ("RMSE at most 25000", "RMSE <= 25000"),
    ("RMSE up to 25000", "RMSE <= 25000"),
    ("RMSE within 25000", "RMSE <= 25000"),
    ("RMSE no more than 25000", "RMSE <= 25000"),
    ("RMSE no worse than 25000", "RMSE <= 25000"),
    ("R2 no worse than 0.85", "R2 >= 0.85"),
    ("R2 above 0.85", "R2 > 0.85"),
    ("R2 over 0.85", "R2 > 0.85"),
    ("R2 greater than 0.85", "R2 > 0.85"),
    ("R2 more than 0.85", "R2 > 0.85"),
    ("R2 at least 0.85", "R2 >= 0.85"),
    ("R2 no less than 0.85", "R2 >= 0.85"),
    ("RMSE less than or equal to 25000", "RMSE <= 25000"),
    ("R2 should exceed 0.85", "R2 > 0.85"),
    ("R2 better than 0.85", "R2 > 0.85"),
    ("RMSE better than 25000", "RMSE < 25000"),
    # The other order.
    ("below 25000 RMSE", "RMSE < 25000"),
    ("I need at least 0.85 R²", "R2 >= 0.85"),
    ("no more than 25,000 RMSE, please", "RMSE <= 25000"),
    ("over 90% accuracy and over 0.8 F1", "ACCURACY > 0.9, F1 > 0.8"),
    ("get below 25000 in RMSE and above 0.85 in R²", "RMSE < 25000, R2 > 0.85"),
    ("below 25000 RMSE and above 0.85 R²", "RMSE < 25000, R2 > 0.85"),
    ("0.85 <= R², 25000 > RMSE", "R2 >= 0.85, RMSE < 25000"),
    ("90% accuracy and 80% recall", "ACCURACY >= 0.9, RECALL >= 0.8"),
    ("a 0.9 AUC", "AUC >= 0.9"),
    ("0.85 or higher R2", "R2 >= 0.85"),
    # Numbers.
    ("RMSE < 25,000", "RMSE < 25000"),
    ("RMSE < 25'000", "RMSE < 25000"),
    ("RMSE < 25 000", "RMSE < 25000"),
    ("RMSE < 1,250,000.50", "RMSE < 1250000.5"),
    ("RMSE < 1.250.000", "RMSE < 1250000"),
    ("RMSE < 25k", "RMSE < 25000"),
    ("RMSE < 1.2m", "RMSE < 1200000"),
    ("RMSE < $25k", "RMSE < 25000"),
    ("RMSE < €25,000", "RMSE < 25000"),
    ("RMSE < USD 25,000", "RMSE < 25000"),
    ("RMSE < 2.5e4", "RMSE < 25000"),
    ("RMSE < 25 thousand dollars", "RMSE < 25000"),
    ("MAE < 3,5", "MAE < 3.5"),
    ("R2 > 0,85", "R2 > 0.85"),
    ("accuracy > 90 %", "ACCURACY > 0.9"),
    ("accuracy > 90 percent", "ACCURACY > 0.9"),
    ("accuracy > 90", "ACCURACY > 0.9"),
    ("accuracy > 99.5%", "ACCURACY > 0.995"),
    ("MAPE below 12%", "MAPE < 0.12"),
    ("MAPE below 12", "MAPE < 0.12"),
    ("log loss < 1.5", "LOG_LOSS < 1.5"),
    ("MAE below 5 m", "MAE < 5"),
    ("MAE of at most 2 hours", "MAE <= 2"),
    # Metrics.
    ("R^2 > 0.85", "R2 > 0.85"),
    ("R-squared > 0.85", "R2 > 0.85"),
    ("r squared above 0.85", "R2 > 0.85"),
    ("a coefficient of determination of at least 0.85", "R2 >= 0.85"),
    ("root mean squared error below 25000", "RMSE < 25000"),
    ("mean squared error below 625000000", "MSE < 625000000"),
    ("mean absolute error below 15,000", "MAE < 15000"),
    ("mean absolute percentage error under 10%", "MAPE < 0.1"),
    ("balanced accuracy of 0.8", "BALANCED_ACCURACY >= 0.8"),
    ("F1-score > 0.8", "F1 > 0.8"),
    ("macro F1 of at least 0.8", "F1 >= 0.8"),
    ("f1 score 0.8", "F1 >= 0.8"),
    ("ROC AUC > 0.9", "AUC > 0.9"),
    ("ROC-AUC above 0.9", "AUC > 0.9"),
    ("area under the curve above 0.9", "AUC > 0.9"),
    ("precision >= 0.7, recall >= 0.6", "PRECISION >= 0.7, RECALL >= 0.6"),
    ("log-loss at most 0.3", "LOG_LOSS <= 0.3"),
    ("ｒ２＞０．８５", "R2 > 0.85"),
    # Negations.
    ("RMSE must not exceed 25000", "RMSE <= 25000"),
    ("RMSE should never be above 25,000", "RMSE <= 25000"),
    ("the RMSE isn't above 25000", "RMSE <= 25000"),
    ("accuracy must not drop below 90%", "ACCURACY >= 0.9"),
    ("not below 0.85 R2", "R2 >= 0.85"),
    ("R2 not less than 0.85", "R2 >= 0.85"),
    ("R2 must not be worse than 0.85", "R2 >= 0.85"),
    ("We do not want an RMSE above 25000", "RMSE <= 25000"),
    ("Do not accept an accuracy below 0.9", "ACCURACY >= 0.9"),
    # As people write.
    ("Predict SalePrice. I'd be happy with an R2 of around 0.85 or better.", "R2 >= 0.85"),
    ("Can you get me an accuracy of 90% on the test set?", "ACCURACY >= 0.9"),
    ("RMSE (on the test set) must be < 25000 and R² (> 0.85)", "RMSE < 25000, R2 > 0.85"),
    ("Goals:\n- RMSE: below 25,000 USD\n- R²: 0.85+\n", "RMSE < 25000, R2 >= 0.85"),
    ("1. RMSE < 25000\n2. R2 > 0.85", "RMSE < 25000, R2 > 0.85"),
    ("RMSE<25000,R2>0.85,MAE<15000", "RMSE < 25000, R2 > 0.85, MAE < 15000"),
    ("rmse 25000, r2 0.85", "RMSE <= 25000, R2 >= 0.85"),
    ("an error (RMSE) of no more than 25,000 dollars", "RMSE <= 25000"),
    ("maximum RMSE: 25000, minimum accuracy: 0.9", "RMSE <= 25000, ACCURACY >= 0.9"),
    ("Improve the current model to an R2 above 0.85", "R2 > 0.85"),
    ("Our current model has an RMSE of 31000; we want an RMSE below 25000", "RMSE < 25000"),
    ("train on 2000 rows for an accuracy above 0.9", "ACCURACY > 0.9"),
    ("with 5-fold cross-validation, accuracy above 0.9", "ACCURACY > 0.9"),
    ("accuracy with 5-fold CV above 0.9", ""),
    ("An 80/20 split and 0.9 accuracy", "ACCURACY >= 0.9"),
    ("The price of houses sold in 2010: RMSE under 2500", "RMSE < 2500"),
    ("F1/AUC > 0.8", "AUC > 0.8"),
    ("Do not use PID, reach R2 > 0.85 and do not overfit", "R2 > 0.85"),
    ("RMSE = 25000", "RMSE <= 25000"),
    ("MAE under $40k and R2 at or above 0.8", "MAE < 40000, R2 >= 0.8"),
    ("R2 greater or equal to 0.7", "R2 >= 0.7"),
    ("Get the MAE down to 2.5", "MAE <= 2.5"),
    ("MAE within ±3 degrees", "MAE <= 3"),
    ("accuracy (balanced) > 0.8", "BALANCED_ACCURACY > 0.8"),
    ("建立房价模型，RMSE＜25000，R²＞0.85", "RMSE < 25000, R2 > 0.85"),
    ("root mean squared error (RMSE) below 25000", "RMSE < 25000"),
    ("recall must be at least 70 %, AUC of 0.8+ would be great", "RECALL >= 0.7, AUC >= 0.8"),
]  # fmt: skip

NOT_READ = [
    "Predict the price of houses sold in 2010",
    "Our table has more than 2000 rows and over 80 columns",
    "Measure the RMSE of 2019 data",
    "What was the 2010 RMSE?",
    "RMSE over 2019",
    "good accuracy, using at most 10 features",
    "good accuracy in under 5 minutes",
    "accuracy on more than 500 customers",
    "accuracy for customers over 30",
    "Recall that more than 90% of the customers stay",
    "Round to a precision of 2 decimals",
    "use precision agriculture data with more than 50 fields",
    "Predict R2 from R1 and R3",
    "The column R2 is over 5 in most rows",
    "Use `R2` above 0.5 only",
    "RMSLE < 0.15",
    "RMSE below 10%",
    "RMSE and R2",
    "accuracy > 250",
    "R2 > -0.5",
    "accuracy above 9/10",
    "Last year's RMSE was 31000",
    "the baseline accuracy of 60% is known",
    "We do not need an accuracy above 99%",
    "People above 60 in houses under 100 m2",
    "Version 2.0.1 of model R2D2 < 5",
    "",
]


@pytest.mark.parametrize(("problem", "expected"), READ, ids=[text[:50] for text, _ in READ])
def test_a_sentence_gives_its_thresholds(problem, expected):
    thresholds, _ = read_thresholds(problem)
    assert ", ".join(map(str, thresholds)) == expected


def test_the_corpus_is_large_enough():
    assert len(READ) >= 80


@pytest.mark.parametrize("problem", NOT_READ)
def test_a_number_that_is_about_something_else_is_no_threshold(problem):
    # In columns as well, since the reader of a table knows them.
    assert read_thresholds(problem, columns=["R1", "R2", "R3"])[0] == ()


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ("RMSE and R² > 0.85", "'RMSE'"),
        ("accuracy and F1 of at least 0.9", "'accuracy'"),
        ("RMSLE < 0.15", "'RMSLE < 0.15'"),
        ("R2 > 0.85 and an MCC over 0.5", "'MCC over 0.5'"),
        ("RMSE below 10%", "'RMSE below 10%'"),
        ("accuracy on more than 500 customers", "more than 500"),
        ("RMSE < 25.000", "25"),
        ("Last year's RMSE was 31000", "RMSE was 31000"),
        ("We do not need an accuracy above 99%", "99%"),
        ("classify with an error below 5%", "error below 5%"),
        ("loss below 0.3", "loss below 0.3"),
        ("R2 between 0.8 and 0.9", "'R2'"),
        ("accuracy > 90", "90 %"),
        ("MAPE below 5", "5 %"),
        ("use 2 accuracy metrics", "'2 accuracy'"),
        # A bound without a metric, and one that is no number.
        ("Predict price with an error less than 10%", "'error less than 10%'"),
        ("Predict price, right within 5 minutes", "within 5 minutes'"),
        ("At least 90 percent of them right", "'At least 90 percent"),
        ("MAE < four", "bound in 'MAE < four'"),
        ("MAE < -5", "bound in 'MAE < -5'"),
        ("accuracy above 0.9x, please", "bound in 'accuracy above 0.9x'"),
        ("R2 of at least ninety percent", "bound in 'R2 of at least ninety'"),
    ],
)
def test_what_is_not_read_is_reported(problem, named):
    _, warnings = read_thresholds(problem)
    assert len(warnings) == 1
    assert named in warnings[0]


def test_a_column_named_like_a_metric_is_reported_when_a_number_is_compared_with_it():
    thresholds, warnings = read_thresholds("R2 > 0.85", columns=["R1", "R2"])
    assert thresholds == ()
    assert "column" in warnings[0]
    assert read_thresholds("R² > 0.85", columns=["R1", "R2"])[0]


@pytest.mark.parametrize(
    "problem",
    [
        "RMSE above 25000",
        "accuracy below 0.9",
        "R2 of 0.85 or less",
        "RMSE must not be below 25000",
        "RMSE < 25000 and R² < 0.85",
        "0.9 > accuracy",
        "log loss > 0.5",
    ],
)
def test_a_threshold_against_the_nature_of_its_metric_is_refused(problem):
    with pytest.raises(ProblemError):
        read_thresholds(problem)


@pytest.mark.parametrize(
    "problem", ["R2 > 1.5", "R2 of 1.5", "at least 9 AUC", "F1: 2", "accuracy must exceed 9.9"]
)
def test_a_threshold_out_of_reach_is_refused_and_not_read_as_a_small_percentage(problem):
    with pytest.raises(ProblemError, match="percentage"):
        read_thresholds(problem)


@pytest.mark.parametrize(
    ("problem", "value"),
    [("R2 > 10", 0.1), ("accuracy > 9%", 0.09), ("R2 >= 1", 1.0), ("accuracy > 0.9", 0.9)],
)
def test_a_number_without_a_sign_is_a_percentage_from_10(problem, value):
    (threshold,), _ = read_thresholds(problem)
    assert threshold.value == value


@pytest.mark.parametrize(
    "problem",
    ["The table has more than 2000 rows; R2 > 0.5", "accuracy over time", "MAE below the one of today"],
)
def test_what_is_no_bound_on_a_score_is_not_told_as_one(problem):
    _, warnings = read_thresholds(problem)
    assert not any("bound" in warning or "No threshold" in warning for warning in warnings)


def test_every_way_of_writing_one_number_gives_one_value():
    for number in ("25000", "25,000", "25'000", "25 000", "$25,000", "25k", "2.5e4", "25,000.0"):
        for sentence in (f"RMSE < {number}", f"less than {number} RMSE", f"RMSE of {number}."):
            (threshold,), _ = read_thresholds(sentence)
            assert threshold.value == 25000, sentence


def test_a_long_text_is_read_in_one_go():
    problem = "RMSE and so on, not at all, " * 20_000 + "R2 > 0.85"
    thresholds, _ = read_thresholds(problem)
    assert [str(threshold) for threshold in thresholds] == ["R2 > 0.85"]


def test_metrics_are_named_with_and_without_thresholds():
    mentions = metrics_named("RMSE and R² > 0.85, by high R2")
    assert [(mention.metric, mention.has_threshold) for mention in mentions] == [
        ("rmse", False),
        ("r2", True),
    ]
    assert metrics_named("Predict R2 from R1", columns=["R1", "R2"]) == ()
