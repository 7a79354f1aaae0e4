"""Misconfiguration, outage, refusal and a wrong answer are four things, and only the last costs trust.

A model server answers over HTTP; everything is read as an operator reads it, with commands.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.acting import Refused, serving
from tests.examples import covering

POST = '''
"""Sorts letters, one after another."""

from dataclasses import dataclass
from typing import Literal

from detent import Flow, Machine, Outcome, Status, Step


@dataclass
class Sorted:
    about: Literal["fault", "invoice"]


async def sort(ctx) -> Sorted:
    return Sorted("fault" if ctx.data.left % 2 else "invoice")


def turn(ctx):
    left = ctx.data.left - 1
    return Outcome("sort" if left else "done", set={"left": left})


post = Flow(
    Machine(
        "post", start="sort", moves={"sort": ["turn"], "turn": ["sort", "done"]},
        ends={"done": Status.SUCCEEDED},
    ),
    {
        "sort": Step(
            "sort", sort, "Say what the letter is about.", output_schema=Sorted,
            inputs=lambda ctx: {"letter": f"{ctx.data.left}: {'broken' if ctx.data.left % 2 else 'due'}"},
        ),
        "turn": Step("turn", turn),
    },
)
'''
SETTINGS = """
plugins: [post.py]
model: {{provider: house}}
models:
  house: {{kind: vllm, base_url: "{url}/v1"{model}}}
steps:
  post/sort: {{mode: agent, autonomy: {level}, max_retries: 0}}
autonomy: {{audit: {{consultant: 1.0, approver: 1.0}}}}
"""


def refusing(status: int, body: bytes = b'{"error": {"message": "no"}}') -> Callable[[Any], Any]:
    """A reply with this status."""

    def reply(_: Any) -> Any:
        raise Refused(status, body)

    return reply


def right(body: Any) -> dict[str, str]:
    """The right answer, read from the letter."""
    return {"about": "fault" if "broken" in str(body["messages"][-1]["content"]) else "invoice"}


def wrong(body: Any) -> dict[str, str]:
    """A plausible answer that is never right."""
    return {"about": "invoice" if right(body)["about"] == "fault" else "fault"}


class Fault(NamedTuple):
    """What is wrong with a model, and what is to be told of it."""

    reply: Any
    counts: str
    """The verdict under which it is counted."""
    reason: str
    """The fallback's, in the journal."""
    model: str = ", model_id: tiny"
    down: bool = False

    @property
    def visits(self) -> int:
        """Enough for a demotion, if such visits brought it about."""
        return 52 if self.counts == "refused" else 8


FAULTS = {
    "no model id": Fault(right, "misconfigured", "no_executor", model=""),
    "wrong key": Fault(refusing(401), "misconfigured", "exception"),
    "key without rights": Fault(refusing(403), "misconfigured", "exception"),
    "no such model": Fault(refusing(404), "misconfigured", "exception"),
    "server down": Fault(right, "outage", "exception", down=True),
    "rate limit": Fault(refusing(429), "outage", "exception"),
    "server broken": Fault(refusing(500), "outage", "exception"),
    "no HTTP answer of a model": Fault(refusing(200, b"<html>hello"), "outage", "exception"),
    "bad JSON": Fault("it is about a fault, I think", "refused", "schema_violation"),
    "schema violation": Fault({"about": "weather"}, "refused", "schema_violation"),
}


def closed_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def configure(folder: Path, url: str, level: str, model: str = ", model_id: tiny") -> None:
    (folder / "post.py").write_text(POST)
    (folder / "detent.yaml").write_text(SETTINGS.format(url=url, level=level, model=model))


def work(detent: Any, run_id: str, visits: int) -> Any:
    done = detent("run", "post", "--data", json.dumps({"left": visits}), "--id", run_id, "--quiet")
    assert done.code == 0, done
    return done


def records(detent: Any, run_id: str) -> list[dict[str, Any]]:
    """The dispatch records of the step in the journal."""
    lines = [json.loads(line) for line in detent("export", run_id).out.splitlines()]
    return [line["detail"] for line in lines if line["kind"] == "moved" and line["frm"] == "sort"]


def shown(detent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The step in `steps list` and in the report."""
    (listed,) = [row for row in detent("steps", "list", "--json").json if row["step"] == "post/sort"]
    (figures,) = detent("autonomy", "report", "--json").json["steps"]
    return listed, figures


@pytest.mark.parametrize(("name", "level"), covering(FAULTS, ["collaborator", "consultant"], together=1))
def test_what_is_no_wrong_answer_costs_no_trust_and_is_counted_as_what_it_is(detent, folder, name, level):
    fault = FAULTS[name]
    visits = fault.visits
    with serving(fault.reply) as model:
        url = f"http://127.0.0.1:{closed_port()}" if fault.down else model.url
        configure(folder, url, level, fault.model)
        done = work(detent, "r1", visits)
    found = records(detent, "r1")
    assert Counter(record["fallback_reason"] for record in found) == {fault.reason: visits}
    listed, figures = shown(detent)
    assert (listed["in_force"], listed["demotion"]) == (level, None)
    assert (figures["n"], figures["differed"]) == (0, 0)
    assert figures["unusable"] == {fault.counts: visits}
    assert figures["fallbacks"] == {fault.reason: visits}
    assert figures["could_be"] is None
    report = detent("autonomy", "report").out
    assert f"{fault.counts} {visits}" in report
    first = done.err.splitlines()[0] if done.err else ""
    unusable = fault.down or not fault.model
    assert ("Code performs instead: sort." in first) is unusable, done.err
    step = detent("steps", "show", "post/sort").out
    assert "was lowered" not in step
    assert ("its handler, in place of an agent" in step) is (not fault.model)


def test_wrong_answers_at_consultant_lower_the_step_and_everyone_says_why(detent, folder):
    with serving(wrong) as model:
        configure(folder, model.url, "consultant")
        work(detent, "r1", 10)
    listed, figures = shown(detent)
    assert (listed["autonomy"], listed["in_force"]) == ("consultant", "collaborator")
    why = listed["demotion"]["why"]
    assert "more than 2.0% wrong" in why
    assert figures["unusable"] == {}
    step = detent("steps", "show", "post/sort").out
    assert "post/sort was lowered from consultant to collaborator on " in step
    assert why in step
    assert "collaborator" in detent("steps", "list", "--flow", "post").out


def test_wrong_answers_at_collaborator_drift_and_are_given_up_for_operator(detent, folder):
    with serving(wrong) as model:
        configure(folder, model.url, "collaborator")
        work(detent, "r1", 49)
        listed, figures = shown(detent)
        assert listed["in_force"] == "collaborator"
        assert figures["fallbacks"] == {"validation_failure": 49}
        assert (figures["n"], figures["differed"], figures["unusable"]) == (49, 49, {})
        work(detent, "r2", 2)
        asked = len(model.asked)
    assert asked == 50, "at operator it is not asked"
    assert shown(detent)[0]["in_force"] == "operator"


@pytest.mark.parametrize("name", ["server down", "wrong key", "schema violation"])
def test_trouble_belongs_to_the_agent_that_had_it_and_holds_its_raise_back(detent, folder, name):
    """A model that answered before and is now away is the same agent: one line, one series."""
    fault = FAULTS[name]
    with serving(right) as model:
        configure(folder, model.url, "collaborator")
        work(detent, "r1", 20)
        model.replies[:] = [fault.reply]
        if not fault.down:
            work(detent, "r2", 5)
        address = model.url
    if fault.down:
        configure(folder, address, "collaborator")
        work(detent, "r2", 5)
    _, figures = shown(detent)
    assert (figures["n"], figures["differed"], figures["unusable"]) == (20, 0, {fault.counts: 5})


VERSE = "version: '1.0'\nname: verse\nsteps:\n  - {name: write, type: agent, agent: poet}\n"
POET = """
from detent.workflow import agent

@agent("poet", instructions="You write verse.")
def poet(context):
    return "Write."
"""


def test_an_agent_step_without_a_model_waits_and_the_first_line_says_so(detent, folder):
    """D-29 is about agents that were asked. `require_model: true` refuses to begin."""
    (folder / "poets.py").write_text(POET)
    (folder / "verse.yaml").write_text(VERSE)
    (folder / "detent.yaml").write_text("plugins: [poets.py]\n")
    done = detent("workflow", "run", "verse.yaml")
    first = next(line for line in done.err.splitlines() if "be asked" in line)
    assert "Without a handler, and waiting for a person: write." in first, done.err
    assert "Code performs instead" not in first
    assert "waiting" in done.out
    (folder / "detent.yaml").write_text("plugins: [poets.py]\nrequire_model: true\n")
    assert detent("workflow", "run", "verse.yaml", "--restart").code == 3
