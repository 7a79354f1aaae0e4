"""N-104: scores are measured again; no cheat passes for a hold-out's score, no honest notebook is accused."""

import random

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.model_selection import KFold, cross_val_score

from detent.flows.notebook.domain.probes import (
    Measured,
    fingerprint_probe,
    folds_probe,
    hold_out_probe,
    primary_metric,
    read_measured,
    verdicts,
)
from detent.flows.notebook.domain.problem import Split, Threshold
from tests.flows.notebook.domain.made_notebook import (
    RMSE,
    class_table,
    evaluated,
    measured,
    notebook,
    number_table,
    reading_of,
    score,
)

HOLD_OUT = hold_out_probe(reading_of(thresholds=[RMSE]))


@pytest.fixture
def names():
    return notebook(number_table())


def checks(found: Measured) -> set[str]:
    assert found.error is None
    return {finding.check for finding in found.findings}


class TestHonestNotebooks:
    def test_their_scores_are_measured_and_sound(self, names):
        found = measured(HOLD_OUT, names)
        predicted = names["final_model"].predict(names["X_test"])
        assert found.is_sound
        assert found.rows == 60
        assert found.scores["rmse"] == pytest.approx(mean_squared_error(names["y_test"], predicted) ** 0.5)
        assert found.scores["r2"] == pytest.approx(r2_score(names["y_test"], predicted))
        assert [verdict.met for verdict in verdicts(reading_of(thresholds=[RMSE]), found)] == [True]

    def test_so_are_those_of_classes(self):
        names = notebook(class_table(), "classification")
        found = measured(hold_out_probe(reading_of("classification")), names)
        assert found.is_sound
        assert set(found.scores) == {
            "accuracy", "balanced_accuracy", "f1", "precision", "recall", "auc", "log_loss",
        }  # fmt: skip

    def test_so_is_money_written_as_text(self):
        raw = number_table()
        raw["price"] = [f"${value:,.2f}" for value in raw["price"]]
        names = notebook(number_table())
        names["raw_dataset"] = raw
        assert measured(HOLD_OUT, names).is_sound

    def test_so_are_classes_spelt_alike(self):
        raw = class_table()
        raw["price"] = [f" {value.upper()}" if n % 3 else value for n, value in enumerate(raw["price"])]
        names = notebook(class_table(), "classification")
        names["raw_dataset"] = raw
        assert measured(hold_out_probe(reading_of("classification")), names).is_sound

    def test_so_is_one_that_dropped_doubled_rows_and_rows_without_a_target(self):
        raw = pd.concat([number_table(), number_table().head(40)], ignore_index=True)
        raw.loc[0:10, "price"] = np.nan
        names = notebook(raw.drop_duplicates().dropna())
        names["raw_dataset"] = raw
        assert measured(HOLD_OUT, names).is_sound

    def test_so_is_one_with_whole_groups_held_out(self):
        raw = number_table()
        raw["clinic"] = np.arange(len(raw)) % 11
        held = raw["clinic"].isin([1, 2])
        split = Split("group", "clinic")
        names = notebook(raw, columns=["a", "b"], train=raw.index[~held], test=raw.index[held])
        assert measured(hold_out_probe(reading_of(split=split)), names).is_sound

    def test_the_kernel_is_left_as_it_was(self, names):
        names["final_model"] = RandomForestRegressor(n_estimators=5).fit(names["X_train"], names["y_train"])
        score(names)
        before = set(names)
        np.random.seed(5)
        random.seed(5)
        expected = np.random.random(), random.random()
        np.random.seed(5)
        random.seed(5)
        eval(HOLD_OUT, names)
        eval(folds_probe(reading_of()), names)
        assert (np.random.random(), random.random()) == expected
        assert set(names) - {"__builtins__"} == before

    def test_a_probe_prints_nothing(self, names, capsys):
        names["final_model"].set_params(
            ridge=RandomForestRegressor(n_estimators=5, verbose=2, random_state=0)
        )
        names["final_model"].fit(names["X_train"], names["y_train"])
        score(names)
        capsys.readouterr()
        evaluated(folds_probe(reading_of()), names)
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", "")


def literal_performance(names):
    names["test_performance"] = {"rmse": 10.0, "r2": 0.99, "n": 60}


def wrong_count(names):
    names["test_performance"]["n"] = 300


def missing_figure(names):
    del names["test_performance"]["rmse"]


def words_for_figures(names):
    names["test_performance"]["rmse"] = "10.0"


def shared_rows(names):
    some = names["X_train"].head(30)
    names["X_test"] = pd.concat([names["X_test"].head(30), some])
    names["y_test"] = names["df_typed"].loc[names["X_test"].index, "price"]
    score(names)


def without_hard_rows(names):
    errors = (names["final_model"].predict(names["X_test"]) - names["y_test"]).abs()
    easy = errors.sort_values().index[:50]
    names["X_test"], names["y_test"] = names["X_test"].loc[easy], names["y_test"].loc[easy]
    score(names)


def without_hard_rows_anywhere(names):
    raw = names["raw_dataset"]
    middle = raw["price"].between(raw["price"].quantile(0.03), raw["price"].quantile(0.985))
    names.update(notebook(raw[middle]))
    names["raw_dataset"] = raw


def tiny_hold_out(names):
    names.update(
        notebook(
            names["raw_dataset"], train=names["raw_dataset"].index[15:], test=names["raw_dataset"].index[:15]
        )
    )


def most_rows_dropped(names):
    raw = names["raw_dataset"]
    names.update(notebook(raw.head(30)))
    names["raw_dataset"] = raw


def strangers(names):
    names["X_test"] = names["X_test"].set_axis(range(9000, 9060))
    names["y_test"] = names["y_test"].set_axis(range(9000, 9060))


def another_target(names):
    names["df_typed"]["price"] = names["df_typed"]["price"].rolling(50, min_periods=1).mean()
    names["y_train"] = names["df_typed"].loc[names["X_train"].index, "price"]
    names["y_test"] = names["df_typed"].loc[names["X_test"].index, "price"]
    names["final_model"].fit(names["X_train"], names["y_train"])
    score(names)


def target_in_thousands(names):
    names["df_typed"]["price"] /= 1000
    names["y_train"], names["y_test"] = names["y_train"] / 1000, names["y_test"] / 1000
    names["final_model"].fit(names["X_train"], names["y_train"])
    score(names)


def softened_test_target(names):
    names["y_test"] = pd.Series(names["final_model"].predict(names["X_test"]), index=names["X_test"].index)
    score(names)


def fitted_on_all_rows(names):
    model = RandomForestRegressor(n_estimators=30, random_state=0)
    typed = names["df_typed"]
    names["final_model"] = model.fit(typed.drop(columns="price"), typed["price"])
    score(names)


class LooksUp(RegressorMixin, BaseEstimator):
    """A model that knows the answers by the row's label."""

    def __init__(self, answers=None):
        self.answers = answers

    def fit(self, rows, truth):
        self.fitted_ = True
        return self

    def predict(self, rows):
        return self.answers.reindex(rows.index).fillna(self.answers.mean()).to_numpy()


def answers_looked_up(names):
    names["final_model"] = LooksUp(names["df_typed"]["price"]).fit(None, None)
    score(names)


CHEATS = {
    literal_performance: "claim",
    wrong_count: "claim",
    missing_figure: "claim",
    words_for_figures: "claim",
    shared_rows: "rows",
    without_hard_rows: "coverage",
    without_hard_rows_anywhere: "coverage",
    tiny_hold_out: "share",
    most_rows_dropped: "coverage",
    strangers: "rows",
    another_target: "target",
    target_in_thousands: "target",
    softened_test_target: "target",
    fitted_on_all_rows: "model",
    answers_looked_up: "model",
}


@pytest.mark.parametrize("cheat", CHEATS, ids=[cheat.__name__ for cheat in CHEATS])
def test_a_cheat_is_found_and_meets_no_threshold(names, cheat):
    cheat(names)
    found = measured(HOLD_OUT, names)
    assert CHEATS[cheat] in checks(found)
    assert not verdicts(reading_of(thresholds=[Threshold("rmse", "<", 1e9)]), found)[0].met


class TestSides:
    """The hold-out follows the split that was chosen, whatever was convenient."""

    def test_groups_on_both_sides_are_found(self):
        raw = number_table().assign(clinic=np.arange(300) % 20)
        probe = hold_out_probe(reading_of(split=Split("group", "clinic")))
        assert checks(measured(probe, notebook(raw, columns=["a", "b"]))) == {"split"}

    def test_earlier_rows_held_out_are_found(self):
        raw = number_table().assign(day=pd.date_range("2020-01-01", periods=300))
        probe = hold_out_probe(reading_of(split=Split("time", "day")))
        later = notebook(raw, columns=["a", "b"], train=raw.index[:240], test=raw.index[240:])
        assert measured(probe, later).is_sound
        assert checks(measured(probe, notebook(raw, columns=["a", "b"]))) == {"split"}

    def test_a_group_column_that_was_dropped_is_looked_up_in_the_raw_table(self):
        raw = number_table().assign(clinic=np.arange(300) % 20)
        names = notebook(raw.drop(columns="clinic"))
        names["raw_dataset"] = raw
        probe = hold_out_probe(reading_of(split=Split("group", "clinic")))
        assert checks(measured(probe, names)) == {"split"}
        assert measured(folds_probe(reading_of(split=Split("group", "clinic"))), names).error is None


def test_rows_relabelled_by_hand_are_found():
    names = notebook(class_table(), "classification")
    wrong = names["final_model"].predict(names["X_test"]) != names["y_test"]
    guesses = names["final_model"].predict(names["X_test"][wrong])
    names["df_typed"].loc[names["X_test"].index[wrong], "price"] = guesses
    names["y_test"] = names["df_typed"].loc[names["X_test"].index, "price"]
    score(names, "classification")
    assert names["test_performance"]["accuracy"] == 1.0
    assert "target" in checks(measured(hold_out_probe(reading_of("classification")), names))


def test_classes_thrown_together_are_found():
    names = notebook(class_table(), "classification")
    names["df_typed"]["price"] = names["df_typed"]["price"].replace("middle", "high")
    names["y_train"] = names["df_typed"].loc[names["X_train"].index, "price"]
    names["y_test"] = names["df_typed"].loc[names["X_test"].index, "price"]
    names["final_model"].fit(names["X_train"], names["y_train"])
    score(names, "classification")
    assert "target" in checks(measured(hold_out_probe(reading_of("classification")), names))


def test_data_changed_after_it_was_read_are_found(names):
    fingerprint = evaluated(fingerprint_probe(), names)
    probe = hold_out_probe(reading_of(thresholds=[RMSE]), fingerprint=fingerprint)
    assert measured(probe, names).is_sound
    names["raw_dataset"].loc[5, "a"] += 0.001
    names["df_typed"].loc[5, "a"] += 0.001
    assert checks(measured(probe, names)) == {"data"}


@pytest.mark.parametrize("change", ["value", "name", "order", "index"])
def test_a_fingerprint_tells_any_change(change):
    table = class_table()
    changed = {
        "value": table.assign(price=table["price"].replace("low", "lower")),
        "name": table.rename(columns={"a": "aa"}),
        "order": table.iloc[::-1],
        "index": table.set_axis(table.index + 1),
    }[change]
    probe = fingerprint_probe()
    assert eval(probe, {"raw_dataset": table}) == eval(probe, {"raw_dataset": table.copy()})
    assert eval(probe, {"raw_dataset": table}) != eval(probe, {"raw_dataset": changed})


class TestProbesThatCannotRun:
    @pytest.mark.parametrize("missing", ["final_model", "X_test", "df_typed", "raw_dataset"])
    def test_a_missing_name_is_told(self, names, missing):
        del names[missing]
        found = measured(HOLD_OUT, names)
        assert not found.is_sound
        assert missing in found.error

    def test_a_model_that_raises_is_told(self, names):
        names["X_test"] = names["X_test"].drop(columns="a")
        found = measured(HOLD_OUT, names)
        assert not found.is_sound
        assert verdicts(reading_of(thresholds=[RMSE]), found)[0].met is False

    def test_a_value_of_another_kind_is_told(self):
        assert read_measured([1, 2]).error is not None
        assert read_measured(None).error is not None


class TestFolds:
    def test_a_clone_is_scored_in_the_framework_s_folds(self, names):
        found = measured(folds_probe(reading_of()), names)
        folds = KFold(5, shuffle=True, random_state=42)
        expected = -cross_val_score(
            names["final_model"], names["X_train"], names["y_train"], cv=folds,
            scoring="neg_root_mean_squared_error",
        ).mean()  # fmt: skip
        assert found.scores["rmse"] == pytest.approx(expected)
        assert found.baseline["rmse"] > 1.2 * found.scores["rmse"]

    def test_literal_cv_metrics_change_nothing(self, names):
        before = evaluated(folds_probe(reading_of()), names)
        names["cv_metrics"] = {"rmse": 0.0}
        assert evaluated(folds_probe(reading_of()), names) == before

    def test_the_hold_out_is_not_touched(self, names):
        del names["X_test"], names["y_test"]
        assert measured(folds_probe(reading_of()), names).error is None

    def test_answers_that_are_looked_up_score_no_better_than_the_baseline(self, names):
        answers_looked_up(names)
        found = measured(folds_probe(reading_of()), names)
        assert found.scores["rmse"] > 0.9 * found.baseline["rmse"]

    def test_groups_are_not_parted(self):
        """On one such table the shuffled split says R² 0.98 where hardly anything can be told."""
        choice = np.random.default_rng(0)
        raw = pd.DataFrame({"clinic": np.repeat(np.arange(30), 10)})
        raw["size"] = np.repeat(choice.normal(size=30), 10)
        raw["price"] = np.repeat(choice.normal(size=30), 10) + choice.normal(0, 0.05, 300)
        model = RandomForestRegressor(n_estimators=20, random_state=0)
        names = notebook(raw, columns=["size"], model=model)
        shuffled = measured(folds_probe(reading_of()), names)
        grouped = measured(folds_probe(reading_of(split=Split("group", "clinic"))), names)
        assert shuffled.scores["r2"] > 0.9
        assert grouped.scores["r2"] < 0.3

    def test_equal_rows_stay_on_one_side(self):
        choice = np.random.default_rng(0)
        base = pd.DataFrame({"a": choice.normal(size=60), "price": choice.normal(size=60)})
        raw = pd.concat([base] * 5, ignore_index=True)
        names = notebook(raw, model=RandomForestRegressor(n_estimators=20, random_state=0))
        assert measured(folds_probe(reading_of()), names).scores["r2"] < 0.5

    def test_the_past_is_trained_on_and_later_rows_are_scored(self):
        choice = np.random.default_rng(0)
        days = choice.permutation(300)
        raw = pd.DataFrame({"day": days, "a": days * 1.0, "price": days * 2.0})
        names = notebook(raw, columns=["a"], model=RandomForestRegressor(n_estimators=20, random_state=0))
        shuffled = measured(folds_probe(reading_of()), names)
        timed = measured(folds_probe(reading_of(split=Split("time", "day"))), names)
        assert shuffled.scores["r2"] > 0.99
        assert timed.scores["r2"] < 0

    def test_a_class_with_one_row_is_only_trained_with(self):
        raw = class_table()
        raw.loc[7, "price"] = "unique"
        train = raw.index[raw.index % 5 != 0].union([7])
        names = notebook(raw, "classification", train=train, test=raw.index.difference(train))
        found = measured(folds_probe(reading_of("classification")), names)
        assert found.error is None
        assert found.scores["log_loss"] is not None

    def test_many_rows_are_sampled(self):
        raw = pd.concat([number_table()] * 4, ignore_index=True)
        raw = pd.concat([raw] * 3, ignore_index=True)
        raw["a"] += np.random.default_rng(0).normal(size=len(raw))
        wide = pd.DataFrame(0.0, index=raw.index, columns=[f"w{n}" for n in range(1500)])
        names = notebook(pd.concat([raw, wide], axis=1), columns=["a", *wide.columns], model=_Mean())
        assert measured(folds_probe(reading_of()), names).rows == 2000


class _Mean(RegressorMixin, BaseEstimator):
    """A model that is fitted in no time."""

    def fit(self, rows, truth):
        self.mean_ = truth.mean()
        return self

    def predict(self, rows):
        return np.full(len(rows), self.mean_)


class TestVerdicts:
    def test_without_thresholds_the_baseline_must_be_beaten(self):
        reading = reading_of()
        better = Measured({"rmse": 9.0}, baseline={"rmse": 10.0})
        worse = Measured({"rmse": 10.0}, baseline={"rmse": 10.0})
        assert verdicts(reading, better)[0].met
        assert not verdicts(reading, worse)[0].met
        assert verdicts(reading, Measured({"rmse": 9.0})) == ()

    def test_classes_must_be_told_apart_better_than_by_the_most_frequent_one(self):
        reading = reading_of("classification")
        assert primary_metric(reading) == "balanced_accuracy"
        found = Measured({"balanced_accuracy": 0.6}, baseline={"balanced_accuracy": 0.5})
        assert verdicts(reading, found)[0].met

    def test_each_threshold_has_its_own(self):
        reading = reading_of(thresholds=[RMSE, Threshold("r2", ">", 0.9)])
        found = verdicts(reading, Measured({"rmse": 30.0, "r2": 0.8}))
        assert [(verdict.metric, verdict.met) for verdict in found] == [("rmse", True), ("r2", False)]

    def test_an_unmeasured_metric_is_not_met(self):
        found = verdicts(reading_of(thresholds=[RMSE]), Measured({"rmse": None}))
        assert not found[0].met
