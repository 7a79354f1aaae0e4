"""Secret inputs: a tool at work gets the value; journals, logs, events, prompts and files get a mark."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from detent.adapters.models.scripted import ScriptedSource, ScriptedStepExecutor
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings
from detent.engine.tools import ToolError
from detent.flows.workflow.events import WorkflowStarted
from detent.flows.workflow.registry import Action, ValidationStage
from detent.flows.workflow.secrets import revealing
from detent.kernel.plain import encode, to_plain
from detent.stores import SQLiteStore
from detent.tools import Tool
from tests.flows.workflow.workshop import INTENT, Ran, Workshop, flow

VALUE = 'hunter2-"quoted"\\9'
HEAD = "inputs: {token: {type: string, secret: true}}"
USE = """
- {name: send, type: python, action: spend, kwargs: {token: "Bearer ${{ inputs.token }}"}}
- {name: ask, type: python, action: leak, kwargs: {token: "${{ inputs.token }}"}}
- {name: say, type: python, action: say, kwargs: {message: "it is ${{ inputs.token }}"}}
- {name: mark, type: checkpoint}
- {name: again, type: python, action: echo, kwargs: {value: "${{ steps.ask.output }}"}}
"""


@pytest.fixture
def vault(workshop: Workshop) -> Workshop:
    workshop.environ["DETENT_INPUT_TOKEN"] = VALUE
    return workshop


def everything(workshop: Workshop, ran: Ran, log: str = "") -> str:
    """All that anybody could read afterwards."""
    told = [encode(to_plain(event.to_plain())) for event in ran.events]
    files = [
        path.read_bytes().decode("utf-8", "replace") for path in workshop.folder.rglob("*") if path.is_file()
    ]
    return "\n".join([*told, *files, log, repr(ran.result), repr(ran.journals)])


def hides(text: str, value: str = VALUE) -> bool:
    return value not in text and encode(value)[1:-1] not in text and "hunter2" not in text


async def test_a_secret_reaches_tools_and_nothing_that_is_kept(
    vault: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole store, every event, every log line, every file written."""
    caplog.set_level(logging.DEBUG, "detent")
    ran = await vault.run(flow(USE, HEAD), store=SQLiteStore(vault.folder / "runs.db"))
    assert ran.result.success
    assert vault.effects == [("send", f"Bearer {VALUE}"), ("echo", VALUE)]
    assert hides(everything(vault, ran, caplog.text))
    assert (vault.folder / "runs.db").stat().st_size > 1000
    assert "run.ended" in caplog.text


async def test_actions_see_a_mark_and_answers_of_tools_come_back_with_it(vault: Workshop) -> None:
    ran = await vault.run(flow(USE, HEAD))
    mark = ran.run.data["inputs"]["token"]
    assert mark.startswith("***token:")
    assert ran.step("send").output == {"sent": f"Bearer {mark}", "said": f"thanks for Bearer {mark}"}
    assert ran.step("ask").output == {"answer": {"text": mark, mark: [mark, {"inside": f"<{mark}>"}]}}
    (started,) = ran.told(WorkflowStarted)
    assert started.inputs == {"token": mark}


async def test_each_run_has_marks_of_its_own(vault: Workshop) -> None:
    marks = {(await vault.run(flow(USE, HEAD))).run.data["inputs"]["token"] for _ in range(3)}
    assert len(marks) == 3


async def test_a_text_from_outside_that_looks_like_a_mark_reveals_nothing(vault: Workshop) -> None:
    other = (await vault.run(flow(USE, HEAD))).run.data["inputs"]["token"]
    vault.effects.clear()
    text = flow(
        '- {name: send, type: python, action: spend, kwargs: {token: "${{ inputs.text }}"}}',
        "inputs: {token: {type: string, secret: true}, text: {type: string}}",
    )
    for guess in (other, "***token***", "***token:***", "***token:000000000000***", "${{ inputs.token }}"):
        await vault.run(text, {"text": guess})
    assert [text for _, text in vault.effects] == [
        other, "***token***", "***token:***", "***token:000000000000***", "${{ inputs.token }}",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["refused", "broken", "transient"])
async def test_what_a_tool_says_when_it_fails_holds_no_secret(
    vault: Workshop, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "detent")

    def refuse(token: str) -> Any:
        if kind == "refused":
            raise ToolError("denied", f"{token} is not known")
        if kind == "transient":
            raise ConnectionError(f"lost while sending {token}")
        raise ValueError(f"what is {token}?")

    async def ask(ctx: Any, token: str) -> Any:
        return await ctx.query("desk.ask", token=token)

    async def tell(ctx: Any, token: str) -> dict[str, Any]:
        return {"said": ctx.propose("desk.tell", token=token)}

    vault.tools += [Tool("desk.ask", refuse, "query"), Tool("desk.tell", refuse)]
    vault.more += [
        Action("ask", handler=ask, intent=INTENT, queries=("desk.ask",)),
        Action("tell", handler=tell, intent=INTENT, effects=("desk.tell",)),
    ]
    for name in ("ask", "tell"):
        text = flow(
            f'- {{name: it, type: python, action: {name}, kwargs: {{token: "${{{{ inputs.token }}}}"}}}}',
            HEAD,
        )
        ran = await vault.run(text, store=SQLiteStore(vault.folder / f"{name}.db"))
        assert not ran.result.success
        assert hides(everything(vault, ran, caplog.text)), name


async def test_a_secret_in_what_a_validation_stage_says_is_hidden(vault: Workshop) -> None:
    vault.more.append(ValidationStage("env", command=("env",)))
    own = vault.run_stage

    async def run_stage(stage: ValidationStage) -> dict[str, Any]:
        said = await own(stage)
        return {**said, "output": f"DETENT_INPUT_TOKEN={VALUE}"}

    vault.run_stage = run_stage  # type: ignore[method-assign]
    ran = await vault.run(
        flow("- {name: check, type: validate, stages: [env]}", HEAD),
        store=SQLiteStore(vault.folder / "runs.db"),
    )
    assert hides(everything(vault, ran))
    (result,) = ran.step("check").output["stage_results"]
    assert result["output"].startswith("DETENT_INPUT_TOKEN=***token:")


async def test_an_optional_secret_that_is_not_set_is_null_and_keeps_no_tool_from_working(
    workshop: Workshop,
) -> None:
    ran = await workshop.run(
        flow(
            """
            - {name: a, type: python, action: put, kwargs: {text: a}}
            - {name: b, type: python, action: give, kwargs: {value: "${{ inputs.token }}"}}
            """,
            "inputs: {token: {type: string, secret: true, required: false}}",
        )
    )
    assert ran.result.success
    assert ran.result.final_output is None


async def test_a_secret_that_is_gone_when_the_run_goes_on_fails_the_step_that_needs_it(
    vault: Workshop,
) -> None:
    text = flow(
        """
        - {name: wait, type: python, action: meet, kwargs: {name: x}}
        - {name: send, type: python, action: spend, kwargs: {token: "${{ inputs.token }}"}}
        """,
        HEAD,
    )
    async with vault.under_way(text) as engine:
        await vault.until_inside("x")
        del vault.environ["DETENT_INPUT_TOKEN"]
        vault.door("x").set()
        ran = await vault.finished(engine)
    assert "DETENT_INPUT_TOKEN" in (ran.step("send").error or "")
    assert vault.effects == []


async def test_of_two_secrets_the_longer_is_hidden_whole(workshop: Workshop) -> None:
    workshop.environ |= {"DETENT_INPUT_SHORT": "abc", "DETENT_INPUT_LONG": "abcdef"}
    ran = await workshop.run(
        flow(
            '- {name: ask, type: python, action: leak, kwargs: {token: "${{ inputs.long }}"}}',
            "inputs: {short: {type: string, secret: true}, long: {type: string, secret: true}}",
        )
    )
    assert ran.step("ask").output["answer"]["text"] == ran.run.data["inputs"]["long"]


# -- below --------------------------------------------------------------------------------------------------


async def test_a_secret_is_handed_on_to_loops_children_and_rollbacks(vault: Workshop) -> None:
    vault.files["other"] = flow(
        '- {name: send2, type: python, action: spend, kwargs: {token: "sub ${{ inputs.key }}"}}',
        "inputs: {key: {type: string}}",
        "other",
    )
    vault.files["own"] = flow(
        '- {name: send3, type: python, action: spend, kwargs: {token: "own ${{ inputs.second }}"}}',
        "inputs: {second: {type: string, secret: true}}",
        "own",
    )
    vault.environ["DETENT_INPUT_SECOND"] = "hunter2-second"
    ran = await vault.run(
        flow(
            """
            - name: each
              type: loop
              for_each: ["${{ inputs.token }}"]
              steps: [{name: send1, type: python, action: spend, kwargs: {token: "item ${{ item }}"}}]
            - {name: sub, type: subworkflow, workflow: other, inputs: {key: "${{ inputs.token }}"}}
            - {name: mine, type: subworkflow, workflow: own}
            - {name: bad, type: python, action: boom}
            """,
            HEAD,
        ),
        store=SQLiteStore(vault.folder / "runs.db"),
    )
    assert [text for _, text in vault.effects[:3]] == [
        f"item {VALUE}", f"sub {VALUE}", "own hunter2-second",
    ]  # fmt: skip
    assert [text for _, text in vault.effects[3:]] == [
        "own hunter2-second", f"sub {VALUE}", f"item {VALUE}",
    ]  # fmt: skip
    assert hides(everything(vault, ran))


async def test_a_secret_of_a_child_that_is_not_set_fails_the_step_and_names_the_variable(
    workshop: Workshop,
) -> None:
    workshop.files["own"] = flow(
        '- {name: a, type: python, action: give, kwargs: {value: "${{ inputs.second }}"}}',
        "inputs: {second: {type: string, secret: true}}",
        "own",
    )
    ran = await workshop.run(flow("- {name: sub, type: subworkflow, workflow: own}"))
    assert "DETENT_INPUT_SECOND" in (ran.step("sub").error or "")


async def test_an_agent_is_told_the_mark_and_its_proposal_is_performed_with_the_value(
    vault: Workshop,
) -> None:
    """D-69 as well: what an agent did is undone, by the handler."""
    text = flow(
        """
        - {name: send, type: python, action: spend, kwargs: {token: "${{ inputs.token }}"}}
        - {name: bad, type: python, action: boom}
        """,
        HEAD,
    )
    spec = vault.spec(text)
    data = vault.data(spec)
    mark = data["inputs"]["token"]
    calls = {"calls": [{"tool": "vault.send", "args": {"token": mark}}]}
    executor = ScriptedStepExecutor({"send": [{"output": calls}, {"output": {"sent": mark, "token": mark}}]})
    settings = DispatchSettings(
        steps={"send": StepConfig(mode=StepMode.AGENT, autonomy=AutonomyLevel.APPROVER)},
        executors=ScriptedSource(executor),
    )
    async with vault.engine(spec, dispatch=settings) as engine:
        await engine.start("flow", data, run_id="r")
        ran = await vault.finished(engine)
    assert len(executor.calls) == 2
    assert hides(repr(executor.calls))
    assert mark in repr(executor.calls)
    assert ran.step("send").dispatch["mode_used"] == "agent"
    assert vault.effects == [("send", VALUE), ("send", VALUE)]  # the second is the rollback
    assert hides(everything(vault, ran))


def test_a_tool_that_reveals_takes_the_arguments_of_the_tool_behind_it() -> None:
    def find(who: str, many: int = 3) -> dict[str, Any]:
        return {}

    def keep(call: Any, what: str) -> None: ...

    said = {"type": "object", "properties": {"in_words": {"type": "string"}}}
    tools = [
        Tool("device.find", find, "query"),
        Tool("device.keep", keep, wants_call=True),
        Tool("device.tell", find, arguments=said),
    ]
    for once in (revealing(tools), revealing(revealing(tools))):
        assert [tool.schema for tool in once] == [tool.schema for tool in tools]
