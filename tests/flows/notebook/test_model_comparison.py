"""The benchmark of models says who is ahead by more than noise; its figures are printed by `make bench`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.notebook import Split, compared, errors, scored
from benchmarks.notebook_tables import CLI, QUICK, TABLES


def predictions(noise, rows=300, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=rows)
    return truth, {name: truth + rng.normal(0, size, rows) for name, size in noise.items()}


def split(noise, seed=0):
    truth, predicted = predictions(noise, seed=seed)
    return Split(truth, (), predicted)


def test_errors_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    truth = rng.choice(["no", "yes"], 200)
    chance = np.clip(np.round(rng.random(200) + 0.2 * (truth == "yes"), 1), 0.05, 0.95)  # with ties
    both = np.column_stack([1 - chance, chance])
    weights = np.ones((1, 200))
    assert errors("auc", truth, both, ["no", "yes"], weights)[0] == pytest.approx(
        1 - roc_auc_score(truth == "yes", chance)
    )
    assert errors("log_loss", truth, both, ["no", "yes"], weights)[0] == pytest.approx(
        log_loss(truth == "yes", chance)
    )
    drawn = rng.multinomial(200, np.full(200, 1 / 200), 1)
    repeated = np.repeat(np.arange(200), drawn[0])
    assert errors("auc", truth, both, ["no", "yes"], drawn.astype(float))[0] == pytest.approx(
        1 - roc_auc_score(truth[repeated] == "yes", chance[repeated])
    )


@pytest.mark.parametrize(("own", "verdict"), [(0.5, "ahead"), (1.0, "even"), (1.02, "even"), (1.5, "BEHIND")])
def test_a_difference_counts_beyond_the_noise_alone(own, verdict):
    splits = [split({"detent": own, "boosting": 1.0}, seed) for seed in (0, 1)]
    comparison = compared("rmse", splits, "boosting")
    assert comparison.verdict == verdict
    assert comparison.lower < comparison.ratio < comparison.upper
    assert comparison.ratio == pytest.approx(own, rel=0.15)
    assert len(comparison.by_split) == 2


def test_one_lucky_split_does_not_decide():
    lucky, others = split({"detent": 0.5, "boosting": 1.0}), split({"detent": 1.6, "boosting": 1.0}, 1)
    assert compared("rmse", [lucky], "boosting").verdict == "ahead"
    assert compared("rmse", [lucky, others, others], "boosting").verdict == "even"


def test_of_accuracy_the_share_of_mistakes_is_compared():
    truth = np.array(["a", "b"] * 50)
    wrong = truth.copy()
    wrong[:20] = "?"
    half = truth.copy()
    half[:10] = "?"
    one = Split(truth, ("a", "b"), {"detent": half, "boosting": wrong})
    assert scored("accuracy", [one], "detent") == pytest.approx(0.9)
    assert compared("accuracy", [one], "boosting").ratio == pytest.approx(0.5)


def test_eight_tables_at_least_of_both_tasks():
    metrics = [table.metric for table in TABLES]
    assert len(metrics) >= 8
    assert 2 <= metrics.count("rmse") <= len(metrics) - 2
    assert {CLI, *QUICK} <= {table.name for table in TABLES}
