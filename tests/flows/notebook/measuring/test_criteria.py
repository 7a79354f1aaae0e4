"""Criteria: what a text asks for, and what may not be asked."""

import pytest

from detent.adapters.jupyter.cell_result import EvalResult
from detent.flows.notebook.domain.problem import Threshold
from detent.flows.notebook.measuring.criteria import (
    LONGEST,
    CriterionRefused,
    acceptance_pieces,
    judge,
    parse_criterion,
    read_goal,
    threshold_criterion,
)

CATALOGUE = [
    "len(raw_dataset) > 0",
    'data_inventory_checklist["bytes"] == Path(user_submit_files[0]).stat().st_size',
    'set(data_structure_document["dtypes"]) == set(raw_dataset.columns)',
    'task_type in ("regression", "classification")',
    '{"predictability","computability","stability"} <= set(pcs_hypothesis_framework)',
    "df_typed.isin([np.inf, -np.inf]).sum().sum() == 0",
    "df_cleaned[T].equals(df_typed.loc[df_cleaned.index, T])",
    "all(Path(p).stat().st_size > 1000 for p in eda_charts)",
    "set(X_train.index).isdisjoint(X_test.index)",
    '(joblib.load("models/model.pkl").predict(X_train) == final_model.predict(X_train)).all()',
    'Path("outputs/predict.py").exists()',
    'not leakage_report["leaks"]',
    "os.path.exists(path)",
    "math.isclose(score, 0.5)",
    "sorted(names, key=lambda name: name.lower()) == names",
    "[row for row in rows if row[0] > 1] != []",
    'df.drop(columns=["a"], inplace=False).shape[1] == 2',
    "prices.open.min() > 0",
]
KNOWN = {"raw_dataset", "df_cleaned", "eda_charts", "report"}


def refused(text, known=None):
    with pytest.raises(CriterionRefused) as error:
        parse_criterion(text, known)
    return error.value.reason


class TestReading:
    """N-103."""

    @pytest.mark.parametrize("text", CATALOGUE)
    def test_an_expression_is_taken_as_it_stands(self, text):
        assert parse_criterion(text).text == text

    @pytest.mark.parametrize(
        ("text", "expression"),
        [
            ("The data has rows: len(raw_dataset) > 0", "len(raw_dataset) > 0"),
            ("`len(raw_dataset) > 0`", "len(raw_dataset) > 0"),
            ("rows must exist, i.e. `len(raw_dataset) > 0` at least", "len(raw_dataset) > 0"),
            ("Check: the rows: len(raw_dataset[0: 3]) == 3", "len(raw_dataset[0: 3]) == 3"),
            ("  len(raw_dataset) > 0  ", "len(raw_dataset) > 0"),
            ("done: `raw_dataset.shape == (2, 3)`", "raw_dataset.shape == (2, 3)"),
        ],
    )
    def test_text_in_backticks_or_after_the_last_colon_is_taken(self, text, expression):
        assert parse_criterion(text).text == expression

    def test_a_slice_in_a_whole_expression_is_not_cut_at_its_colon(self):
        assert parse_criterion("len(raw_dataset[0: 3]) == 3").text == "len(raw_dataset[0: 3]) == 3"

    def test_equal_trees_are_equal_however_they_are_spelt(self):
        one = parse_criterion('set(report["a"])==  {1,2}')
        assert one.tree == parse_criterion("(set(report['a']) == {1, 2})").tree
        assert one.tree != parse_criterion("set(report['a']) == {2, 1}").tree

    def test_names_are_those_from_outside(self):
        criterion = parse_criterion("all(Path(p).stat().st_size > len(q) for p in eda_charts for q in [p])")
        assert criterion.names == {"Path", "eda_charts"}


class TestRefusals:
    """N-103: each with its reason."""

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("all dtypes validated", "prose"),
            ("", "prose"),
            ("RMSE < 25,000 on the hold-out", "prose"),
            ("x = 3", "statement"),
            ("del report", "statement"),
            ("import os", "statement"),
            ("assert len(report) > 0", "statement"),
            ("(n := len(report)) > 0", "assignment"),
            ("[m := 1 for _ in report] == []", "assignment"),
            ('eval("1") == len(report)', "forbidden_name"),
            ('exec("x = 1") is None and report', "forbidden_name"),
            ('open("a").read() == report', "forbidden_name"),
            ('setattr(report, "a", 1) is None', "forbidden_name"),
            ("print(report) is None", "forbidden_name"),
            ('os.system("ls") == len(report)', "forbidden_name"),
            ("os.getpid() == report", "forbidden_name"),
            ("joblib.Parallel(2) is report", "forbidden_name"),
            ('os.remove("a") is report', "changes_its_object"),
            ('joblib.dump(report, "a.pkl")', "changes_files"),
            ("getattr(report, name)() == 1", "forbidden_name"),
            ('getattr(report, "__class__") == dict', "dunder"),
            ("report.__class__ == dict", "dunder"),
            ('__import__("os") and report', "dunder"),
            ("final_model.fit(X, y) is not None", "changes_its_object"),
            ("report.append(1) is None", "changes_its_object"),
            ('report.update(a=1) is None and report["a"]', "changes_its_object"),
            ('report.pop("a") == 1', "changes_its_object"),
            ("list(map(report.append, [1])) == [None]", "changes_its_object"),
            ('df.drop(columns="a", inplace=True) is None', "changes_its_object"),
            ("df.sort_values(by=c, inplace=flag) is None", "changes_its_object"),
            ('Path("a").write_text(report) > 0', "changes_files"),
            ('Path("a").unlink() is None and report', "changes_files"),
            ('df.to_csv("a.csv") is None', "changes_files"),
        ],
    )
    def test_what_is_no_question_to_the_kernel_is_refused(self, text, reason):
        assert refused(text) == reason

    @pytest.mark.parametrize(
        "text",
        [
            "True",
            "1 == 1",
            "not False",
            '"a" in "abc"',
            "len([1, 2]) == 2",
            "report == report",
            "report is report",
            "len(report) >= 0",
            "0 <= len(report)",
            "len(report) > -1",
            "abs(score) >= 0",
            "report or True",
            "True or len(report) > 3",
            "False and report",
            "len(report) > 3 or not len(report) > 3",
            "isinstance(report, object)",
            "True if report else True",
            "bool(1)",
        ],
    )
    def test_what_is_always_the_same_is_no_criterion(self, text):
        assert refused(text) == "constant"

    @pytest.mark.parametrize(
        "text",
        [
            "len(report) >= 1",
            "len(report) > 0",
            "a == b",
            "a or b",
            "a if b else c",
            "abs(a) > 0",
            "not report",
            "0 < a < 3",
        ],
    )
    def test_what_may_fail_is_one(self, text):
        assert parse_criterion(text)

    def test_a_long_expression_is_refused(self):
        longest = "report == " + '"' + "x" * (LONGEST - 12) + '"'
        assert len(parse_criterion(longest).text) == LONGEST
        assert refused(longest.replace('== "', '== "x')) == "too_long"

    def test_deep_nesting_is_refused_and_not_a_crash(self):
        assert refused("(" * 5000 + "report" + ")" * 5000) in ("prose", "too_long")

    def test_a_name_that_nobody_defines_is_refused_with_the_nearest(self):
        with pytest.raises(CriterionRefused) as error:
            parse_criterion("len(df_clean) > 0", KNOWN)
        assert error.value.reason == "unknown_name"
        assert "Did you mean 'df_cleaned'?" in str(error.value)

    def test_names_of_the_standard_imports_are_always_known(self):
        text = 'np.isfinite(report["a"]) and Path("a").exists() and json.dumps(report) and os.path.isdir("a")'
        assert parse_criterion(text, {"report"})

    def test_a_name_of_a_comprehension_is_no_unknown_one(self):
        assert parse_criterion("all(p for p in eda_charts)", KNOWN)

    def test_without_known_names_none_is_unknown(self):
        assert parse_criterion("len(whatever) > 0")


class TestMentions:
    def test_a_variable_is_mentioned_by_its_name(self):
        criterion = parse_criterion('len(report["frame"]) > 0')
        assert criterion.mentions("report")
        assert not criterion.mentions("frame")

    @pytest.mark.parametrize(
        ("text", "artifact", "mentioned"),
        [
            ('joblib.load("models/model.pkl").predict(X) is X', "models/model.pkl", True),
            ('joblib.load("./models/model.pkl").predict(X) is X', "models/model.pkl", True),
            ('Path("models/model.pkl.bak").exists() and X', "models/model.pkl", False),
            ('len(list(Path("outputs/eda").glob("*"))) > len(X)', "outputs/eda/", True),
            ('Path("outputs/eda/a.png").exists() and X', "outputs/eda/", True),
            ('Path("outputs/eda2/a.png").exists() and X', "outputs/eda/", False),
        ],
    )
    def test_a_file_is_mentioned_by_its_path(self, text, artifact, mentioned):
        assert parse_criterion(text).mentions(artifact) is mentioned


class TestGoals:
    """Section 6: the `Acceptance:` part of a goal."""

    def test_pieces_that_can_be_evaluated_are_criteria_and_the_rest_notes(self):
        goal = (
            "Clean the data. Artifacts: df_cleaned. Acceptance: df_cleaned.isnull().sum().sum() == 0, "
            "all dtypes validated, documented."
        )
        read = read_goal(goal, KNOWN)
        # Not a NameError on `documented`.
        assert [criterion.text for criterion in read.criteria] == ["df_cleaned.isnull().sum().sum() == 0"]
        assert read.notes == ("all dtypes validated", "documented")

    def test_a_bare_known_name_is_a_note_too(self):
        read = read_goal("Acceptance: report, report.shape, len(report) > 0", KNOWN)
        assert [criterion.text for criterion in read.criteria] == ["len(report) > 0"]
        assert read.notes == ("report", "report.shape")

    def test_commas_in_brackets_and_texts_do_not_split(self):
        goal = "Acceptance: set(report['a,b']) == {1, 2}, report.get('x', 0) > 1; it's fine"
        assert acceptance_pieces(goal) == (
            "set(report['a,b']) == {1, 2}",
            "report.get('x', 0) > 1",
            "it's fine",
        )

    def test_a_thousands_separator_does_not_split(self):
        """`len(report) > 1,000` cut at its comma would ask for more than 1."""
        read = read_goal("Acceptance: len(report) > 1,000, documented", KNOWN)
        assert read.criteria == ()
        assert read.notes == ("len(report) > 1,000", "documented")

    def test_lines_and_lists_are_pieces(self):
        goal = (
            "Acceptance:\n- len(report) > 0\n- `len(raw_dataset) > 0, or so`\n2. rows: len(df_cleaned) > 1."
        )
        read = read_goal(goal, KNOWN)
        assert [criterion.text for criterion in read.criteria] == ["len(report) > 0", "len(df_cleaned) > 1"]

    def test_another_label_ends_the_part(self):
        assert acceptance_pieces("Acceptance: len(report) > 0. Artifacts: report, frame") == (
            "len(report) > 0",
        )

    def test_an_open_bracket_ends_with_its_line(self):
        assert acceptance_pieces("Acceptance: see (below, above\nlen(report) > 0, done") == (
            "see (below, above",
            "len(report) > 0",
            "done",
        )

    def test_the_number_of_a_threshold_keeps_its_point(self):
        assert acceptance_pieces("Acceptance: RMSE < 25000, R² > 0.85.") == ("RMSE < 25000", "R² > 0.85")

    def test_unknown_names_constants_and_what_is_forbidden_are_notes(self):
        goal = "Acceptance: len(nobody) > 0; 1 == 1; report.pop('a') == 1; len(report) > 0"
        read = read_goal(goal, KNOWN)
        assert len(read.criteria) == 1
        assert len(read.notes) == 3

    def test_one_criterion_twice_is_one(self):
        assert len(read_goal("Acceptance: len(report) > 0; len(report)>0", KNOWN).criteria) == 1

    @pytest.mark.parametrize(
        "goal", ["", "Do it well.", "Artifacts: report.", "Acceptance:", "Acceptance: ."]
    )
    def test_without_the_part_there_is_nothing(self, goal):
        assert read_goal(goal, KNOWN) == ((), ())


class TestVerdicts:
    """N-40, N-103."""

    @pytest.mark.parametrize(
        ("result", "passed", "value"),
        [
            (EvalResult("True", truth=True), True, "True"),
            (EvalResult("False"), False, "False"),
            # Truthy is no answer: a tuple, a dictionary, a number.
            (EvalResult("(False, True)"), False, "(False, True)"),
            (EvalResult("{'a': 1}", json={"a": 1}), False, "{'a': 1}"),
            (EvalResult("1", json=1), False, "1"),
            (
                EvalResult(error="NameError: name 'x' is not defined"),
                False,
                "NameError: name 'x' is not defined",
            ),
            (EvalResult("True", truth=True, error="TimeoutError"), False, "TimeoutError"),
        ],
    )
    def test_true_alone_passes(self, result, passed, value):
        fact = judge(parse_criterion("len(report) > 0"), result)
        assert (fact.passed, fact.value) == (passed, value)

    def test_a_users_threshold_is_a_locked_criterion(self):
        criterion = threshold_criterion(Threshold("rmse", "<", 25000.0), "test_performance")
        assert criterion.text == 'test_performance["rmse"] < 25000.0'
        assert criterion.locked
        assert judge(criterion, EvalResult("False")).locked
