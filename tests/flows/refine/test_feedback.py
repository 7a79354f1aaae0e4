"""Who sees which feedback, in what order, and how much of it."""

from __future__ import annotations

import pytest

from detent.flows.refine.decisions import validation_feedback
from detent.flows.refine.evaluation import Issue, ValidationReport
from detent.flows.refine.feedback import CUT, Feedback, FeedbackType, for_implementer, for_planner, render

V: FeedbackType = "validation_failure"
S: FeedbackType = "judge_soft_failure"
H: FeedbackType = "judge_hard_failure"


def pieces(*types: FeedbackType) -> list[Feedback]:
    return [Feedback(kind, f"text {number}", number) for number, kind in enumerate(types, 1)]


@pytest.mark.parametrize(
    ("types", "planner", "implementer"),
    [
        ([V, H, S], [1, 2], [3]),
        ([S, S], [], [1, 2]),
        ([S, H], [2], []),
        ([S, H, S], [2], [3]),
        ([S, V, S, S], [2], [3, 4]),
        ([], [], []),
    ],
)
def test_each_part_sees_its_own(types, planner, implementer):
    """R-41: the planner validation and hard failures, the implementer soft ones of the current plan."""
    feedback = pieces(*types)
    assert [piece.iteration for piece in for_planner(feedback)] == planner
    assert [piece.iteration for piece in for_implementer(feedback)] == implementer


def test_the_text_runs_from_the_oldest_to_the_newest():
    """R-41: with the lines of 2.3."""
    report = ValidationReport(
        (
            Issue("warning", "pace", "slow"),
            Issue("error", "template", "unknown template 'spark_rely'. Nearest: 'spark_relay'.", "Verse 1"),
        )
    )
    feedback = [validation_feedback(report, 1, 5.0), *pieces(V, S)[1:]]
    assert render(feedback) == (
        "# Feedback from earlier attempts\n"
        "## Attempt 1, validation failure\n"
        "- [error] template, section \"Verse 1\": unknown template 'spark_rely'. "
        "Nearest: 'spark_relay'.\n"
        "- [warning] pace: slow\n"
        "## Attempt 2, judged too weak, to be refined\n"
        "text 2"
    )
    assert render([]) == ""


def test_at_most_25_are_kept():
    """R-41"""
    feedback = pieces(*[V] * 40)
    assert [piece.iteration for piece in for_planner(feedback)] == list(range(16, 41))
    assert render(feedback).count("## Attempt") == 25


@pytest.mark.parametrize("length", [100, 3_000, 7_000])
def test_the_oldest_go_first_where_there_is_no_room(length):
    """R-41: what is shown is whole, and fits into 2000 tokens of four characters."""
    feedback = [Feedback(H, f"{number}:" + "x" * length, number) for number in range(1, 26)]
    text = render(feedback)
    assert len(text) <= 8_000
    shown = [number for number in range(1, 26) if f"\n{number}:" in text]
    assert shown == list(range(shown[0], 26))
    assert text.count("x" * length) == len(shown)


def test_the_newest_is_cut_and_never_dropped():
    """R-41"""
    text = render([*pieces(V), Feedback(H, "y" * 20_000, 2)])
    assert (len(text), text.endswith(CUT)) == (8_000, True)
    assert "## Attempt 2" in text
    assert "## Attempt 1" not in text


def test_it_survives_being_written_and_read():
    (piece,) = pieces(S)
    assert Feedback.from_plain(piece.to_plain()) == piece
    with pytest.raises(ValueError, match="judge_hard_failure"):
        Feedback("hard", "", 1)  # type: ignore[arg-type]
