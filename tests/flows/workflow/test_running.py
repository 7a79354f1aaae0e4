"""Workflows in a row: what steps are given, when they are passed over, what a run gives in the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from detent import SQLiteStore
from detent.flows.workflow.registry import Action
from detent.flows.workflow.spec import WorkflowSpec
from detent.kernel.entries import Moved, Started
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.flows.workflow.workshop import INTENT, Ran, Workshop, flow


def moves(ran: Ran, run_id: str = "r") -> list[tuple[str, str]]:
    return [(one.body.frm, one.body.to) for one in ran.journals[run_id] if isinstance(one.body, Moved)]


# -- the machine --------------------------------------------------------------------------------------------


async def test_a_run_goes_from_ready_through_its_steps_to_succeeded(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: put, kwargs: {text: a}}
        - {name: second, type: python, action: put, kwargs: {text: b}}
        """)
    )
    assert moves(ran) == [("ready", "first"), ("first", "second"), ("second", "succeeded")]
    assert ran.run.status is Status.SUCCEEDED
    assert ran.effects == [("put", "a"), ("put", "b")]


async def test_a_failed_step_leads_through_rolling_back_to_failed(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: boom, kwargs: {say: out of paper}}
        - {name: second, type: python, action: put, kwargs: {text: b}}
        """)
    )
    assert moves(ran) == [("ready", "first"), ("first", "rolling_back"), ("rolling_back", "failed")]
    assert ran.run.status is Status.FAILED
    assert ran.effects == []
    assert "out of paper" in (ran.result.error or "")


async def test_the_journal_carries_name_version_and_fingerprint_of_the_file(workshop: Workshop) -> None:
    one = flow("- {name: first, type: python, action: give, kwargs: {value: 1}}")
    other = flow("- {name: first, type: python, action: give, kwargs: {value: 2}}")
    begun = []
    for text in (one, other, one):
        ran = await workshop.run(text)
        (started,) = [entry.body for entry in ran.journals["r"] if isinstance(entry.body, Started)]
        assert (started.machine, started.version) == ("flow", 1)
        begun.append(started.fingerprint)
    assert begun[0] == begun[2] != begun[1]


# -- when ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "when", ["false", "inputs.no", "${{ inputs.no }}", "0", "''", "[]", "not inputs.yes"]
)
async def test_a_step_whose_when_is_false_is_passed_over_and_nothing_of_it_runs(
    workshop: Workshop, when: str
) -> None:
    """D-61, D-63."""
    ran = await workshop.run(
        flow(
            f"""
            - {{name: first, type: python, action: put, when: "{when}", kwargs: {{text: "${{{{ steps }}}}"}}}}
            - {{name: second, type: python, action: echo, kwargs: {{value: "${{{{ steps.first.status }}}}"}}}}
            """.replace("${{ steps }}", "${{ inputs.yes }}"),
            "inputs: {no: {type: boolean, default: false}, yes: {type: boolean, default: true}}",
        )
    )
    first = ran.step("first")
    assert (first.status, first.success, first.output, first.error) == ("skipped", True, None, None)
    assert ran.run.data["steps/first"] == {"output": None, "status": "skipped"}
    assert ran.step("second").output == {"value": "skipped"}
    assert ran.effects == []
    assert workshop.called == [("echo", "skipped")]
    (move,) = [e.body for e in ran.journals["r"] if isinstance(e.body, Moved) and e.body.frm == "first"]
    assert move.reason == "when"


@pytest.mark.parametrize("when", ["true", "inputs.name", "inputs.name == 'x'", "${{ len(inputs.name) > 0 }}"])
async def test_a_step_whose_when_is_true_runs(workshop: Workshop, when: str) -> None:
    ran = await workshop.run(
        flow(
            f'- {{name: first, type: python, action: put, when: "{when}", kwargs: {{text: a}}}}',
            "inputs: {name: {type: string}}",
        ),
        {"name": "x"},
    )
    assert ran.step("first").status == "ok"


async def test_a_truth_value_may_stand_as_when(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow("""
        - {name: first, type: python, action: give, when: false}
        - {name: second, type: python, action: give, when: true, kwargs: {value: 2}}
        """)
    )
    assert [one.status for one in ran.result.step_results] == ["skipped", "ok"]


async def test_an_error_in_when_fails_the_step(workshop: Workshop) -> None:
    """D-63."""
    ran = await workshop.run(
        flow(
            """
            - {name: first, type: python, action: put, kwargs: {text: a}}
            - {name: second, type: python, action: put, when: inputs.who.age > 3, kwargs: {text: b}}
            """,
            "inputs: {who: {type: object}}",
        ),
        {"who": {"name": "Ada"}},
    )
    second = ran.step("second")
    assert second.status == "failed"
    assert "age" in (second.error or "")
    assert "name" in (second.error or "")  # what there is
    assert ran.effects == [("put", "a"), ("take", "a")]


@pytest.mark.parametrize(
    "step",
    [
        "type: loop, for_each: [1, 2], steps: [{name: inner, type: python, action: put, kwargs: {text: a}}]",
        "type: branch, options: [{step: {name: inner, type: python, action: put, kwargs: {text: a}}}]",
        "type: subworkflow, workflow: other",
        "type: validate, stages: [good]",
        "type: checkpoint",
        "type: python, action: put, kwargs: {text: a}",
    ],
    ids=["loop", "branch", "subworkflow", "validate", "checkpoint", "python"],
)
async def test_every_kind_of_step_can_be_passed_over(workshop: Workshop, step: str) -> None:
    """D-61."""
    workshop.files["other"] = flow("- {name: a, type: python, action: put, kwargs: {text: a}}", name="other")
    ran = await workshop.run(flow(f"- {{name: it, when: inputs.no, {step}}}", HEAD_NO))
    assert ran.result.success
    assert [(one.path, one.status, one.output) for one in ran.result.step_results] == [
        ("it", "skipped", None)
    ]
    assert (ran.effects, workshop.stages_run, workshop.called) == ([], [], [])
    assert list(ran.journals) == ["r"]
    assert not (workshop.folder / "checkpoints").exists()


HEAD_NO = "inputs: {no: {type: boolean, default: false}}"


# -- what actions are given ---------------------------------------------------------------------------------


async def test_args_go_to_the_first_parameters_and_kwargs_to_those_they_name(workshop: Workshop) -> None:
    """D-61."""
    seen: list[Any] = []

    def mix(ctx: Any, one: str, two: int = 2, *, three: list[int] | None = None) -> dict[str, Any]:
        seen.append((one, two, three))
        return {}

    workshop.more.append(Action("mix", handler=mix, intent=INTENT))
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: mix, args: ["${{ inputs.name }}"]}
            - {name: b, type: python, action: mix, args: [x, 5], kwargs: {three: [1, "${{ inputs.number }}"]}}
            - {name: c, type: python, action: mix, kwargs: {two: "${{ inputs.number }}", one: y}}
            """,
            "inputs: {name: {type: string}, number: {type: integer}}",
        ),
        {"name": "Ada", "number": 7},
    )
    assert ran.result.success
    assert seen == [("Ada", 2, None), ("x", 5, [1, 7]), ("y", 7, None)]


async def test_expressions_resolve_inside_maps_and_lists_and_a_lone_one_keeps_its_type(
    workshop: Workshop,
) -> None:
    """D-63."""
    ran = await workshop.run(
        flow(
            """
            - name: it
              type: python
              action: echo
              kwargs:
                value:
                  number: "${{ inputs.number }}"
                  text: "n = ${{ inputs.number }}"
                  deep: [{list: "${{ inputs.things }}"}, "${{ inputs.things[1] }}", "a ${{ inputs.things }}"]
                  nothing: "${{ inputs.maybe }}"
                  "${{ inputs.number }}": keys stay as they are
                  plain: "$${{ inputs.number }}"
            """,
            "inputs: {number: {type: float}, things: {type: array}, maybe: {type: string, required: false}}",
        ),
        {"number": 1.5, "things": ["${{ inputs.number }}", {"x": None}]},
    )
    assert ran.step("it").output["value"] == {
        "number": 1.5,
        "text": "n = 1.5",
        "deep": [
            {"list": ["${{ inputs.number }}", {"x": None}]},
            {"x": None},
            'a ["${{ inputs.number }}",{"x":null}]',
        ],
        "nothing": None,
        "${{ inputs.number }}": "keys stay as they are",
        "plain": "${{ inputs.number }}",
    }


async def test_an_expression_that_cannot_be_resolved_fails_its_step_before_the_action_is_called(
    workshop: Workshop,
) -> None:
    ran = await workshop.run(
        flow(
            '- {name: it, type: python, action: put, kwargs: {text: "${{ inputs.things[3] }}"}}',
            "inputs: {things: {type: array}}",
        ),
        {"things": [1]},
    )
    assert ran.step("it").status == "failed"
    assert workshop.called == []


async def test_what_an_action_does_to_its_arguments_reaches_nobody_else(workshop: Workshop) -> None:
    def grow(things: list[int]) -> dict[str, Any]:
        things.append(99)
        return {"count": len(things)}

    workshop.more.append(Action("grow", handler=grow, intent=INTENT))
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: grow, kwargs: {things: "${{ inputs.things }}"}}
            - {name: b, type: python, action: grow, kwargs: {things: "${{ inputs.things }}"}}
            """,
            "inputs: {things: {type: array}}",
        ),
        {"things": [1]},
    )
    assert [one.output["count"] for one in ran.result.step_results] == [2, 2]


async def test_an_action_with_a_context_sees_where_it_is(workshop: Workshop) -> None:
    seen: list[Any] = []

    def look(ctx: Any, value: int) -> dict[str, Any]:
        seen.append((ctx.run_id, ctx.step_path, ctx.cwd, value))
        return {}

    workshop.more.append(Action("look", handler=look, intent=INTENT))
    await workshop.run(
        flow("""
        - {name: a, type: python, action: look, kwargs: {value: 1}}
        - name: each
          type: loop
          for_each: [2]
          steps:
            - name: pick
              type: branch
              options: [{step: {name: b, type: python, action: look, kwargs: {value: "${{ item }}"}}}]
        """)
    )
    assert seen == [
        ("r", "a", workshop.folder, 1),
        ("r.each[0]", "each/[0]/pick/b", workshop.folder, 2),
    ]


# -- what actions give --------------------------------------------------------------------------------------


@dataclass
class Report:
    """What an action found."""

    rows: int
    success: bool = True


@pytest.mark.parametrize("value", [None, "text", 3, 1.5, True, [1, {"a": 2}], {}, {"next": "x"}, ""])
async def test_an_action_may_give_any_plain_value(workshop: Workshop, value: Any) -> None:
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: give, kwargs: {value: "${{ inputs.value.it }}"}}
            - {name: b, type: python, action: give, kwargs: {value: ["${{ steps.a.output }}"]}}
            """,
            "inputs: {value: {type: object}}",
        ),
        {"value": {"it": value}},
    )
    assert ran.step("a").output == value
    assert ran.result.final_output == [value]


async def test_an_action_may_give_a_dataclass(workshop: Workshop) -> None:
    workshop.more.append(Action("report", handler=lambda: Report(3), intent=INTENT, output_schema=Report))
    ran = await workshop.run(
        flow("""
        - {name: a, type: python, action: report}
        - {name: b, type: python, action: give, kwargs: {value: "${{ steps.a.output.rows }}"}}
        """)
    )
    assert ran.step("a").output == {"rows": 3, "success": True}
    assert ran.result.final_output == 3


@pytest.mark.parametrize("how", ["boom", "refuse", "report"])
async def test_an_exception_or_success_false_fails_the_step(workshop: Workshop, how: str) -> None:
    """D-36, D-61."""
    workshop.more.append(Action("report", handler=lambda: Report(3, success=False), intent=INTENT))
    ran = await workshop.run(flow(f"- {{name: it, type: python, action: {how}}}"))
    it = ran.step("it")
    assert (it.status, it.success, it.output) == ("failed", False, None)
    assert it.error
    assert ran.result.status is Status.FAILED


async def test_an_opaque_action_that_says_it_failed_fails_the_step(workshop: Workshop) -> None:
    def mend() -> dict[str, Any]:
        return {"success": False, "error": "three things left"}

    workshop.more.append(Action("mend", handler=mend, intent=INTENT, opaque=True))
    ran = await workshop.run(flow("- {name: it, type: python, action: mend}"))
    assert "three things left" in (ran.step("it").error or "")


async def test_what_an_action_says_success_false_about_is_told(workshop: Workshop) -> None:
    ran = await workshop.run(flow("- {name: it, type: python, action: refuse, kwargs: {error: no paper}}"))
    assert "no paper" in (ran.step("it").error or "")


# -- what a run gives ---------------------------------------------------------------------------------------


async def test_outputs_are_the_result(workshop: Workshop) -> None:
    """D-61."""
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: echo, kwargs: {value: 1}}
            - {name: b, type: python, action: echo, when: inputs.no, kwargs: {value: 2}}
            """,
            f"""
            {HEAD_NO}
            outputs:
              one: "${{{{ steps.a.output.value }}}}"
              list: ["${{{{ steps.b.status }}}}", plain, 3]
              other: "${{{{ default(steps.b.output.value, 'none') }}}}"
            """.replace("            ", ""),
        )
    )
    assert ran.result.final_output == {"one": 1, "list": ["skipped", "plain", 3], "other": "none"}


async def test_without_outputs_the_last_finished_step_gives_the_result(workshop: Workshop) -> None:
    """D-61."""
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: echo, kwargs: {value: 1}}
            - {name: b, type: python, action: echo, kwargs: {value: 2}}
            - {name: c, type: python, action: echo, when: inputs.no, kwargs: {value: 3}}
            """,
            HEAD_NO,
        )
    )
    assert ran.result.final_output == {"value": 2}


async def test_a_run_in_which_everything_was_passed_over_gives_null(workshop: Workshop) -> None:
    ran = await workshop.run(flow("- {name: a, type: python, action: give, when: inputs.no}", HEAD_NO))
    assert (ran.result.success, ran.result.final_output) == (True, None)


async def test_an_error_in_outputs_fails_the_run_and_rolls_back_its_last_step_too(workshop: Workshop) -> None:
    """D-69."""
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: put, kwargs: {text: a}}
            - {name: b, type: python, action: put, kwargs: {text: b}}
            """,
            'outputs: {one: "${{ steps.a.output.nowhere }}"}',
        )
    )
    assert ran.run.status is Status.FAILED
    assert "nowhere" in (ran.result.error or "")
    assert [(one.path, one.status) for one in ran.result.step_results] == [("a", "ok"), ("b", "ok")]
    assert ran.effects == [("put", "a"), ("put", "b"), ("take", "b"), ("take", "a")]


async def test_an_error_in_outputs_counts_as_no_failure_of_a_step_without_effects(workshop: Workshop) -> None:
    ran = await workshop.run(
        flow(
            "- {name: a, type: python, action: echo, kwargs: {value: {}}}",
            'outputs: {one: "${{ steps.a.output.value.nowhere }}"}',
        )
    )
    assert ran.run.status is Status.FAILED
    assert ran.step("a").status == "ok"
    assert len([one for one in workshop.called if one[0] == "echo"]) == 1


# -- size ---------------------------------------------------------------------------------------------------


def long(workshop: Workshop, count: int) -> WorkflowSpec:
    """A workflow of so many steps, each on what the one before it gave; more than one file may hold."""
    one = workshop.spec(
        flow("""
        - {name: s0, type: python, action: give, kwargs: {value: 0}}
        - {name: s1, type: python, action: give, kwargs: {value: "${{ steps.s0.output }}"}}
        """)
    )
    first, second = one.steps
    rest = [
        replace(second, name=f"s{n}", kwargs={"value": f"${{{{ steps.s{n - 1}.output }}}}"})  # type: ignore[call-arg]
        for n in range(1, count)
    ]
    return replace(one, steps=(first, *rest), source={"count": count})


async def test_a_long_workflow_costs_as_much_per_step_as_a_short_one(workshop: Workshop) -> None:
    sizes: dict[int, int] = {}
    for count in (60, 600):
        folder = workshop.folder / str(count)
        folder.mkdir()
        ran = await workshop.run(long(workshop, count), store=SQLiteStore(folder / "runs.db"))
        assert ran.result.success
        assert len(ran.result.step_results) == count
        sizes[count] = sum(file.stat().st_size for file in folder.iterdir())
    assert sizes[600] < 12 * sizes[60]


# -- files that cannot be compiled --------------------------------------------------------------------------


async def test_two_workflows_of_one_name_in_one_run_are_refused(workshop: Workshop) -> None:
    workshop.files["here/other"] = flow("- {name: a, type: python, action: give}", name="other")
    workshop.files["there/other"] = flow("- {name: b, type: python, action: give}", name="other")
    spec = workshop.spec(
        flow("""
        - {name: one, type: subworkflow, workflow: here/other}
        - {name: two, type: subworkflow, workflow: there/other}
        """)
    )
    with pytest.raises(ConfigurationError, match="two workflows named 'other'"):
        workshop.compiled().flows(spec)
