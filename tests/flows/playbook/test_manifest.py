"""What a manifest brings along: modules beside the playbook, and further lines for agents."""

from __future__ import annotations

import sys

import pytest

from detent.engine.outcome import Outcome
from detent.flows.playbook.checks import check_playbook
from detent.flows.playbook.flow import playbook_flow
from detent.flows.playbook.functions import failure_of
from detent.flows.playbook.history import MaxStepsExceeded
from detent.kernel.errors import ConfigurationError
from detent.kernel.status import Status
from tests.flows.playbook.bench import drive, script, step_file, write
from tests.flows.playbook.repairs import HANDLERS, mail, repairs

MODULE = '''
from detent import Outcome, query


@query("shelf")
def shelf(book: str) -> dict:
    """Where a book stands."""
    return {"shelf": len(book)}


async def find(ctx):
    return Outcome("DONE", set={"found": await ctx.query("shelf", book=ctx.data.book)})
'''


async def test_tools_and_handlers_come_from_modules_beside_the_playbook(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = write(
        tmp_path / "library",
        {
            "books_of_ours.py": MODULE,
            "playbook.yaml": "tools: [books_of_ours]\nhandlers: [books_of_ours]\nmax_steps: 3\n",
            "01-find": step_file("01-find", handler="find", available_functions="[shelf]", needs="[book]"),
        },
    )
    assert check_playbook(folder) == []
    flow = playbook_flow(folder)
    assert (flow.name, flow.max_steps, flow.budget.steps) == ("library", 3, 3)
    run, _ = await drive(flow, {"book": "Emma"})
    assert (run.status, run.data["found"]) == (Status.SUCCEEDED, {"shelf": 4})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise RuntimeError('broken')", "cannot be imported: RuntimeError: broken."),
        ("import no_such_thing_here", "there is no module 'no_such_thing_here' (needed by"),
    ],
)
def test_a_module_that_cannot_be_imported_is_a_problem_of_the_manifest(tmp_path, monkeypatch, text, words):
    monkeypatch.setattr(sys, "path", [*sys.path])
    name = f"broken_{len(text)}"
    manifest = f"handlers: [{name}]\n"
    files = {f"{name}.py": text, "playbook.yaml": manifest, "01-a": step_file("01-a", call="[]")}
    (problem,) = check_playbook(write(tmp_path / "p", files))
    assert (problem.place.file, problem.place.line, problem.code) == ("p/playbook.yaml", 1, "P16")
    assert words in problem.message


async def test_what_a_handler_appends_stands_beside_what_an_agent_says(tmp_path, world):
    """4.4: what code finds, it finds in every mode."""

    async def flagged(ctx):
        outcome = await HANDLERS["read_mail"](ctx)
        return outcome._replace(append={"flags": ["seen"]})

    flow = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": flagged})
    settings = script({"01-read": ["NUMBER: A-1\nNEXT_STEP: look"]}, autonomy="collaborator")
    run, entries = await drive(flow, mail("A-1"), dispatch=settings)
    assert run.data["flags"] == ["seen"]
    assert any(entry.kind == "moved" and entry.body.by == "agent" for entry in entries)


def test_an_application_may_add_lines_and_contracts_only_for_what_is_there(tmp_path, world):
    flow = repairs(tmp_path, world, protocol={"NUMBER": "order", "WORDS": {"sets": "words"}})
    step = flow.playbook.steps["01-read"]
    assert [line.key for line in flow.playbook.output_lines(step)] == ["FAULT", "WORDS"]
    with pytest.raises(ConfigurationError, match="cannot begin an output line"):
        repairs(tmp_path, world, protocol={"NEXT_STEP": "x"})
    with pytest.raises(ConfigurationError, match="There is no step '09-x'"):
        repairs(tmp_path, world, contracts={"09-x": lambda ctx, outcome, reply: ()})


async def test_arguments_may_come_from_the_application(tmp_path, world):
    files = {"playbook.yaml": "protocol: {}\n", "templates/sorry.en.txt": None}
    flow = repairs(
        tmp_path, world, files, arguments={"send_email": lambda ctx: {"to": "desk", "subject": "Re"}}
    )
    await drive(flow, mail("it leaks"))
    assert world.sent == [{"to": "desk", "subject": "Re", "body": "Which number is it?"}]


async def test_a_handler_may_be_any_function(tmp_path, world):
    flow = repairs(tmp_path, world, handlers=lambda name: HANDLERS.get(name))
    assert (await drive(flow, mail("A-1")))[0].status is Status.SUCCEEDED
    plain = repairs(tmp_path, world, handlers={**HANDLERS, "read_mail": lambda ctx: Outcome("refuse")})
    assert (await drive(plain, mail("A-1")))[0].status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("error", "code", "transient"),
    [
        (TimeoutError(), "timeout", True),
        (ConnectionError("gone"), "connection", True),
        (KeyError("x"), "KeyError", False),
    ],
)
def test_every_failure_has_a_code(error, code, transient):
    said = failure_of(error)["error"]
    assert (said["code"], said["transient"]) == (code, transient)


def test_too_many_steps_can_be_told_as_an_error():
    error = MaxStepsExceeded(2, "03-c", ["01-a", "02-b"])
    assert str(error) == "The run made 2 steps (01-a → 02-b) and would have gone on with '03-c'."
