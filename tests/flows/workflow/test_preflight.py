"""Prerequisites are all checked before the first step, side by side, and told together."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from pathlib import Path

import pytest

from detent.flows.workflow.preflight import (
    Checked,
    PrerequisitesMissing,
    check_prerequisites,
    of_the_file,
    required_by,
)
from detent.flows.workflow.reading import read_workflow
from detent.flows.workflow.registry import Prerequisite, Registry
from detent.flows.workflow.spec import WorkflowSpec

FILE = """
version: "1.0"
name: sample
steps:
  - {name: first, type: python, action: a, requires: [net, disk]}
  - name: each
    type: loop
    for_each: "[1, 2]"
    requires: [disk]
    steps:
      - {name: inner, type: python, action: a, requires: [net, "command:jq"]}
  - name: pick
    type: branch
    options:
      - {when: "true", step: {name: left, type: python, action: a, requires: [power]}}
      - {step: {name: right, type: checkpoint}}
  - name: check
    type: validate
    stages: [test]
    on_failure: {name: mend, type: python, action: a, requires: [tools]}
  - {name: sub, type: subworkflow, workflow: child}
"""
CHILD = """
version: "1.0"
name: child
steps:
  - {name: first, type: python, action: a, requires: [net, moon]}
  - {name: deeper, type: subworkflow, workflow: sample}
"""


def spec_of(text: str, name: str = "sample.yaml") -> WorkflowSpec:
    read = read_workflow(text.encode(), name, folder=Path("."))
    assert read.spec is not None, read.problems
    return read.spec


def simple(*names: str) -> WorkflowSpec:
    """A workflow with one step for each of these names, which needs it."""
    steps = "".join(
        f'  - {{name: s{at}, type: python, action: a, requires: ["{name}"]}}\n'
        for at, name in enumerate(names)
    )
    return spec_of(f'version: "1.0"\nname: simple\nsteps:\n{steps}')


def test_every_prerequisite_of_every_step_is_known_with_the_steps_that_need_it():
    """D-72: loops, branches and `on_failure` included, in the order of the file."""
    assert required_by(spec_of(FILE)) == {
        "net": ("first", "each/inner"),
        "disk": ("first", "each"),
        "command:jq": ("each/inner",),
        "power": ("pick/left",),
        "tools": ("check/mend",),
    }


def test_steps_of_subworkflows_count_and_a_circle_ends():
    found = required_by(spec_of(FILE), find={"child": spec_of(CHILD), "sample": spec_of(FILE)}.get)
    assert found["net"] == ("first", "each/inner", "sub/first")
    assert found["moon"] == ("sub/first",)


def test_a_path_in_a_child_starts_from_that_childs_folder(tmp_path):
    asked: list[str] = []
    child = spec_of(CHILD.replace("workflow: sample", "workflow: ./third.yaml"), str(tmp_path / "child.yaml"))

    def find(name: str) -> WorkflowSpec | None:
        asked.append(name)
        return child if name == "child" else None

    required_by(spec_of(FILE), find=find)
    assert asked == ["child", str(tmp_path / "third.yaml")]


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        (["each"], {"disk", "net", "command:jq"}),
        (["each/inner"], {"net", "command:jq"}),
        (["inner"], {"net", "command:jq"}),
        (["each/[3]/inner"], {"net", "command:jq"}),
        (["pick", "check"], {"power", "tools"}),
        (["sub"], {"net", "moon"}),
        (["sub/first"], {"net", "moon"}),
        (["nobody"], set()),
        ([], set()),
    ],
)
def test_on_resume_only_what_the_steps_still_to_run_need_is_checked(steps, names):
    """A name in another file means nothing here: its steps go by path."""
    found = required_by(spec_of(FILE), steps, find={"child": spec_of(CHILD)}.get)
    assert set(found) == names


@pytest.mark.parametrize(
    ("path", "plain"),
    [("a", "a"), ("a/[0]/b", "a/b"), ("a/[12]", "a"), ("a/[0]/b/[3]/c", "a/b/c"), ("a[0]/b", "a[0]/b")],
)
def test_iterations_are_no_part_of_the_file(path, plain):
    assert of_the_file(path) == plain


async def test_all_failures_are_reported_together_with_remediation_and_affected_steps():
    """D-72."""
    registry = Registry(
        Prerequisite("net", check=lambda: True),
        Prerequisite("disk", check=lambda: (False, "only 3 MB are free"), remediation="Make room."),
        Prerequisite("command", check=lambda name: name != "jq", remediation="Install {argument}.",
                     display_name="command", takes_argument=True),
        Prerequisite("power", check=lambda: (True, "plugged in")),
        Prerequisite("tools", check=lambda: False, remediation="Buy some.", display_name="a box of tools"),
    )  # fmt: skip
    found = await check_prerequisites(spec_of(FILE), registry)
    assert [(one.name, one.ok, one.message) for one in found] == [
        ("net", True, ""),
        ("disk", False, "only 3 MB are free"),
        ("command:jq", False, "it is not there"),
        ("power", True, "plugged in"),
        ("tools", False, "it is not there"),
    ]
    failed = [one for one in found if not one.ok]
    assert [(one.display_name, one.remediation, one.affected_steps) for one in failed] == [
        ("disk", "Make room.", ("first", "each")),
        ("command jq", "Install jq.", ("each/inner",)),
        ("a box of tools", "Buy some.", ("check/mend",)),
    ]
    assert all(one.duration_ms >= 0 for one in found)
    assert found[0].remediation == ""
    error = PrerequisitesMissing("sample", failed)
    assert error.exit_code == 3
    assert str(error).splitlines() == [
        "Workflow 'sample' cannot begin: 3 prerequisites are missing.",
        "  disk: only 3 MB are free. Make room. Needed by: first, each.",
        "  command:jq: it is not there. Install jq. Needed by: each/inner.",
        "  tools: it is not there. Buy some. Needed by: check/mend.",
    ]


def test_many_affected_steps_are_counted_not_listed():
    one = Checked("net", "net", False, "gone", "Wait.", 1.0, tuple(f"s{n}" for n in range(8)))
    assert str(one) == "net: gone. Wait. Needed by: s0, s1, s2, s3, s4 and 3 more."


async def test_checks_run_side_by_side():
    """D-72: each waits for the others, so that one after the other none would answer."""
    here = asyncio.Barrier(3)

    async def meet() -> bool:
        await here.wait()
        return True

    names = ("one", "two", "three")
    found = await check_prerequisites(
        simple(*names), Registry(*(Prerequisite(name, check=meet) for name in names))
    )
    assert all(one.ok for one in found)


async def test_sync_checks_run_side_by_side_too():
    here = threading.Barrier(3, timeout=30)

    def meet() -> bool:
        here.wait()
        return True

    names = ("one", "two", "three")
    found = await check_prerequisites(
        simple(*names), Registry(*(Prerequisite(name, check=meet) for name in names))
    )
    assert all(one.ok for one in found)


async def test_a_check_that_never_answers_is_given_up_and_keeps_nobody_waiting():
    """D-72: async or sync; the program can end though a thread still hangs."""
    never = threading.Event()

    async def hang() -> bool:
        await asyncio.Event().wait()
        return True

    try:
        found = await check_prerequisites(
            simple("async", "sync", "fine"),
            Registry(
                Prerequisite("async", check=hang, remediation="Look."),
                Prerequisite("sync", check=never.wait, remediation="Look."),
                Prerequisite("fine", check=lambda: True),
            ),
            timeout=0.05,
        )
        hanging = [thread for thread in threading.enumerate() if thread.name == "detent-prerequisite"]
        assert all(thread.daemon for thread in hanging)
    finally:
        never.set()
    assert [(one.ok, one.message) for one in found] == [
        (False, "the check did not answer within 0.05 s"),
        (False, "the check did not answer within 0.05 s"),
        (True, ""),
    ]


async def test_a_check_that_raises_has_failed_and_says_how():
    def broken() -> bool:
        raise ValueError("no\nroute")

    async def late() -> bool:
        raise TimeoutError("the server took too long")

    def leaves() -> bool:
        raise SystemExit(3)

    found = await check_prerequisites(
        simple("broken", "late", "leaves"),
        Registry(
            Prerequisite("broken", check=broken),
            Prerequisite("late", check=late),
            Prerequisite("leaves", check=leaves),
        ),
    )
    assert [one.message for one in found] == [
        "the check failed with ValueError: no route",
        "the check failed with TimeoutError: the server took too long",
        "the check failed with RuntimeError: it raised SystemExit",
    ]
    assert not any(one.ok for one in found)


@pytest.mark.parametrize("answer", [None, 1, "yes", (1, "x"), (True,), [True, "x"]])
async def test_an_answer_that_is_none_is_no_yes(answer):
    (one,) = await check_prerequisites(simple("odd"), Registry(Prerequisite("odd", check=lambda: answer)))
    assert not one.ok
    assert "a check answers true or false" in one.message


async def test_a_check_may_give_something_to_wait_for():
    async def later() -> tuple[bool, str]:
        return True, "came later"

    (one,) = await check_prerequisites(simple("x"), Registry(Prerequisite("x", check=lambda: later())))
    assert (one.ok, one.message) == (True, "came later")


async def test_a_check_sees_the_context_it_was_asked_in():
    who = contextvars.ContextVar("who", default="nobody")
    who.set("Ada")
    (one,) = await check_prerequisites(
        simple("x"), Registry(Prerequisite("x", check=lambda: (True, who.get())))
    )
    assert one.message == "Ada"


async def test_a_long_message_is_cut():
    (one,) = await check_prerequisites(
        simple("x"), Registry(Prerequisite("x", check=lambda: (False, "y" * 5000)))
    )
    assert len(one.message) == 300


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nett", "there is no prerequisite 'nett'. Did you mean 'net'?"),
        ("moon:full", "there is no prerequisite 'moon:full'."),
        ("command", "it needs an argument: command:NAME"),
        ("command:", "it needs an argument: command:NAME"),
        ("net:work", "'net' takes no argument"),
    ],
)
async def test_a_prerequisite_that_is_none_fails_its_check(name, said):
    registry = Registry(
        Prerequisite("net", check=lambda: True),
        Prerequisite("command", check=lambda name: True, takes_argument=True),
    )
    (one,) = await check_prerequisites(simple(name), registry)
    assert (one.ok, one.message) == (False, said)


async def test_nothing_needed_is_nothing_checked():
    assert await check_prerequisites(spec_of(FILE), Registry(), steps=[]) == []


async def test_more_checks_than_may_be_under_way_are_all_made():
    names = [f"p{number}" for number in range(100)]
    registry = Registry(*(Prerequisite(name, check=lambda: True) for name in names))
    found = await check_prerequisites(simple(*names), registry)
    assert [one.name for one in found] == names
    assert all(one.ok for one in found)
