"""What is said of a threshold that was missed."""

import pytest

from detent.flows.notebook.finished import verdicts_of
from detent.flows.notebook.run_view import NotebookRun
from detent.flows.notebook.state.deltas import to_data
from detent.flows.notebook.state.document import StateDocument
from detent.flows.notebook.state.ledger import Ledger, RunState


@pytest.mark.parametrize(
    ("threshold", "score", "said"),
    [
        ('test_performance["mae"] < 4', "4.0678", "4.068, over by 0.0678"),
        ('test_performance["r2"] > 0.9', "0.85", "0.85, short by 0.05"),
        ('4 > test_performance["mae"]', "4.5", "4.5, over by 0.5"),
    ],
)
def test_a_score_is_over_or_short_of_its_limit(threshold, score, said):
    ledger = Ledger(locked={threshold: False}, locked_scores={threshold: score})
    run = NotebookRun(to_data(None, RunState(StateDocument(), ledger)).set)
    assert [verdict.measured for verdict in verdicts_of(run)] == [said]
