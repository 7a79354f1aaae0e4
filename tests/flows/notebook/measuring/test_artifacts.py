"""Which artifacts were really produced."""

import pytest

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.flows.notebook.measuring.artifacts import FileInfo, classify, classify_all, written_files
from detent.flows.notebook.measuring.criteria import parse_criterion
from detent.flows.notebook.measuring.expressions import assigned_names

FRAME = VariableInfo(True, "DataFrame", (3, 2), 3)


class TestVariables:
    """N-39."""

    def test_what_was_assigned_and_holds_something_is_complete(self):
        assert classify("frame", FRAME, assigned=True).status == "complete"

    @pytest.mark.parametrize(
        ("info", "assigned", "status", "shortcoming"),
        [
            (None, True, "missing", "absent"),
            (VariableInfo(False), True, "missing", "absent"),
            (VariableInfo(False), False, "missing", "absent"),
            (FRAME, False, "missing", "stale"),
            (VariableInfo(True, "NoneType", is_none=True), True, "incomplete", "none"),
            (VariableInfo(True, "DataFrame", (0, 2), 0), True, "incomplete", "empty"),
            (VariableInfo(True, "dict", size=0), True, "incomplete", "empty"),
            (VariableInfo(True, "str", size=0), True, "incomplete", "empty"),
        ],
    )
    def test_what_is_not_there_old_or_empty_is_not(self, info, assigned, status, shortcoming):
        fact = classify("frame", info, assigned=assigned)
        assert (fact.status, fact.shortcoming) == (status, shortcoming)

    def test_a_number_has_no_length_and_is_not_empty(self):
        assert (
            classify("threshold", VariableInfo(True, "float", json=0.0), assigned=True).status == "complete"
        )

    def test_a_failed_criterion_that_names_it_makes_it_incomplete(self):
        failed = [parse_criterion("len(frame) > 9")]
        fact = classify("frame", FRAME, assigned=True, failed=failed)
        assert (fact.status, fact.shortcoming) == ("incomplete", "criterion")
        assert fact.is_there
        assert classify("report", FRAME, assigned=True, failed=failed).status == "complete"

    def test_a_behavior_that_assigns_nothing_has_produced_nothing(self):
        """N-102: the variable is left from before, and the cell only looks at it."""
        cells = [
            "print(final_model)",
            "final_model.fit(X_train, y_train)",
            "frame['x'] = final_model.predict(X)",
        ]
        assigned = {name for cell in cells for name in assigned_names(cell)}
        facts = classify_all(["final_model"], {"final_model": FRAME}, {}, assigned=assigned)
        assert [fact.status for fact in facts] == ["missing"]
        again = classify_all(
            ["final_model"], {"final_model": FRAME}, {}, assigned=assigned_names("final_model = m")
        )
        assert [fact.status for fact in again] == ["complete"]


class TestFiles:
    """N-39."""

    @pytest.mark.parametrize(
        ("info", "written", "status"),
        [
            (FileInfo(True, 10), True, "complete"),
            (FileInfo(True, 0), True, "incomplete"),
            (FileInfo(False), True, "missing"),
            (FileInfo(True, 10), False, "missing"),
            (FileInfo(True, 10, is_folder=True), True, "complete"),
            (FileInfo(True, 0, is_folder=True), True, "incomplete"),
        ],
    )
    def test_a_file_was_written_and_has_bytes(self, info, written, status):
        assigned = {"models/model.pkl"} if written else set()
        # A variable of the same name proves nothing.
        (fact,) = classify_all(
            ["models/model.pkl"], {"models/model.pkl": FRAME}, {"models/model.pkl": info}, assigned=assigned
        )
        assert fact.status == status

    def test_a_criterion_that_opens_it_names_it(self):
        failed = [parse_criterion('joblib.load("models/model.pkl") is final_model')]
        (fact,) = classify_all(
            ["models/model.pkl"], {}, {"models/model.pkl": FileInfo(True, 9)},
            assigned={"models/model.pkl"}, failed=failed,
        )  # fmt: skip
        assert fact.shortcoming == "criterion"

    def test_files_are_written_when_they_are_new_or_changed(self):
        before = {
            "a": FileInfo(True, 1, 5),
            "b": FileInfo(True, 1, 5),
            "c": FileInfo(True, 1, 5),
            "d": FileInfo(False),
        }
        after = {
            "a": FileInfo(True, 1, 5),
            "b": FileInfo(True, 1, 6),
            "c": FileInfo(True, 2, 5),
            "d": FileInfo(True, 1, 7),
            "e": FileInfo(True, 1, 7),
            "f": FileInfo(False),
        }
        assert written_files(before, after) == {"b", "c", "d", "e"}
