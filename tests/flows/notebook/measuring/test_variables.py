"""Versions of variables, and the four lists of a T6."""

from dataclasses import replace

import pytest

from detent.adapters.jupyter.cell_result import VariableInfo
from detent.flows.notebook.measuring.criteria import parse_criterion
from detent.flows.notebook.measuring.variables import (
    NO_PRODUCER,
    Producer,
    Production,
    VariableFacts,
    VariableRecord,
    find_gaps,
    judged_deprecations,
    manage_variables,
    record,
    shown_value,
)
from detent.flows.notebook.payloads.values import Deprecated, StagePlan, StepPlan
from detent.flows.notebook.state.facts import ArtifactFact, GapFact
from detent.flows.notebook.state.ledger import RunState
from tests.flows.notebook.state.samples import (
    all_steps_done,
    behavior,
    idle,
    move,
    reflection,
    stage,
    step,
    step_done,
    verdict,
)

FRAME = VariableInfo(True, "DataFrame", (2930, 82), 2930, sha256="a1")


class TestRecords:
    def test_each_production_is_the_next_version(self):
        """Section 2.2: `<name>@<version>` is the artifact id."""
        first = record({}, {"frame": FRAME}, {"frame": Production("load_b1", 1, "c1")})
        assert first["frame"] == VariableRecord("frame", 1, "DataFrame", (2930, 82), "a1", "load_b1", 1, "c1")
        again = record(first, {"frame": FRAME}, {"frame": Production("load_b2", 2, "c9")})
        assert again["frame"].artifact_id == "frame@2"

    def test_what_does_not_exist_was_not_produced(self):
        produced = {"ghost": Production("load_b1", 1, "c1"), "gone": Production("load_b1", 1, "c1")}
        assert record({}, {"ghost": VariableInfo(False)}, produced) == {}


class TestShownValues:
    @pytest.mark.parametrize(
        ("name", "info", "shown"),
        [
            ("frame", FRAME, "DataFrame 2930 x 82"),
            ("scores", VariableInfo(True, "dict", size=1, json={"r2": 0.9}), {"r2": 0.9}),
            ("names", VariableInfo(True, "list", size=2, json=["a", "b"]), ["a", "b"]),
            ("flag", VariableInfo(True, "bool", json=False), False),
            ("none", VariableInfo(True, "NoneType", is_none=True), None),
            ("long", VariableInfo(True, "str", size=3000, json="x" * 3000), "str of 3000"),
            ("model", VariableInfo(True, "Pipeline"), "Pipeline"),
            ("models/model.pkl", None, "models/model.pkl"),
        ],
    )
    def test_short_json_is_shown_and_the_rest_described(self, name, info, shown):
        assert shown_value(name, info) == shown

    def test_the_limit_is_on_the_json(self):
        info = VariableInfo(True, "str", size=1998, json="x" * 1998)
        assert shown_value("text", info) == "x" * 1998
        assert shown_value("text", replace(info, json="x" * 1999, size=1999)) == "str of 1999"


def facts_of(run: RunState, **fields) -> VariableFacts:
    return VariableFacts(
        run.document,
        fields.pop("found", {"frame": FRAME, "report": VariableInfo(True, "dict", size=2)}),
        fields.pop("sources", {"frame": "cell1", "report": "cell2"}),
        **fields,
    )


class TestExtracted:
    """N-50."""

    def test_assigned_names_that_exist_have_type_source_and_quality(self):
        facts = facts_of(
            step_done(),
            artifacts=(ArtifactFact("frame", "complete"), ArtifactFact("report", "incomplete", "empty")),
            criteria=(parse_criterion("len(frame) > 0"),),
            sources={"frame": "cell1", "report": "cell2", "ghost": "cell3", "draft": "cell4"},
            found={
                "frame": FRAME,
                "report": VariableInfo(True, "dict", size=0),
                "draft": VariableInfo(True, "int", json=3),
            },
        )
        extracted = {variable.name: variable for variable in manage_variables(facts, ()).extracted}
        assert set(extracted) == {"frame", "report", "draft"}
        assert (extracted["frame"].type, extracted["frame"].source) == ("DataFrame", "cell1")
        assert extracted["frame"].summary == "DataFrame 2930 x 82"
        assert [extracted[name].quality for name in ("frame", "report", "draft")] == [
            "complete",
            "partial",
            "needs_validation",
        ]


class TestRetained:
    """N-50."""

    def test_what_a_remaining_step_or_stage_requires_is_kept_with_its_next_use(self):
        retained = manage_variables(facts_of(step_done()), ()).retain
        assert [(kept.name, kept.next_use) for kept in retained] == [("frame", "describe")]

    def test_what_is_not_there_cannot_be_kept(self):
        run = move(
            idle(), "1", StagePlan((stage("one", "a"), stage("two", "b", needs=("a", "user_problem"))))
        )
        retained = manage_variables(facts_of(run), ()).retain
        assert [kept.name for kept in retained] == ["user_problem"]


class TestDeprecated:
    """N-50, N-57."""

    def test_what_is_replaced_and_not_needed_may_go(self):
        facts = facts_of(all_steps_done(), replacements={"report": "frame", "frame": "report"})
        deprecated = manage_variables(facts, ()).deprecate
        # `frame` is required by the second stage.
        assert [(gone.name, gone.replacement, gone.safe) for gone in deprecated] == [
            ("report", "frame", True)
        ]

    def test_a_claimed_deprecation_is_safe_only_if_nothing_needs_the_name(self):
        asked = (Deprecated("frame", safe=True), Deprecated("report"), Deprecated("user_problem", safe=True))
        judged = judged_deprecations(asked, all_steps_done().document)
        assert [gone.safe for gone in judged] == [False, True, False]


def planned(*steps, variables=("frame",)) -> RunState:
    """A run that has closed the first of these steps."""
    run = move(
        idle(), "1", StagePlan((stage("one", "frame"), stage("two", "model", needs=("frame", "tuned"))))
    )
    run = move(run, "2", StepPlan(steps))
    run = move(run, "3", behavior(f"{steps[0].id}_b1", "frame"))
    run = move(run, "4", variables=dict.fromkeys(variables, 1))
    return move(run, "5a", reflection(True, "frame"), behavior=verdict("frame"), step=verdict("frame"))


class TestGaps:
    """N-79: a missing required variable appears with a resolution."""

    def test_what_the_next_step_requires_is_critical(self):
        run = planned(step("load", "frame"), step("fit", "model", needs=("frame", "lost")))
        gaps = find_gaps(facts_of(run))
        assert gaps[0] == GapFact("lost", "fit", True)

    def test_what_a_later_stage_requires_is_important(self):
        run = planned(step("load", "frame"), step("fit", "model", needs=("frame",)))
        assert find_gaps(facts_of(run)) == (GapFact("tuned", "two", False),)

    def test_what_a_step_before_its_use_will_produce_is_no_gap(self):
        run = planned(step("load", "frame"), step("fit", "tuned"), step("use", "notes", needs=("tuned",)))
        assert find_gaps(facts_of(run)) == ()

    def test_after_the_last_step_the_next_stage_comes_next(self):
        assert find_gaps(facts_of(planned(step("load", "frame")))) == (GapFact("tuned", "two", True),)

    def test_nothing_is_missing_of_what_is_there(self):
        run = planned(step("load", "frame"), variables=("frame", "tuned"))
        assert find_gaps(facts_of(run)) == ()

    def test_what_is_too_weak_for_a_locked_threshold_is_critical(self):
        run = planned(step("load", "frame"), variables=("frame", "tuned", "final_model"))
        producers = {"final_model": Producer("five", "model_training_tuning")}
        (gap,) = find_gaps(facts_of(run, weak=("final_model",), producers=producers))
        assert gap == GapFact(
            "final_model", "a locked threshold", True, "five", "model_training_tuning", weak=True
        )

    @pytest.mark.parametrize(
        ("fields", "how"),
        [
            ({}, NO_PRODUCER),
            ({"producers": {"tuned": Producer("zero", "tune")}}, "backtrack:tune"),
        ],
    )
    def test_each_gap_says_how_to_close_it(self, fields, how):
        facts = facts_of(planned(step("load", "frame")), **fields)
        (gap,) = manage_variables(facts, find_gaps(facts)).gaps
        assert (gap.name, gap.needed_for, gap.urgency, gap.how_to_obtain) == ("tuned", "two", "critical", how)
