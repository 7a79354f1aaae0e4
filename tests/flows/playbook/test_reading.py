"""Step files, read one by one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from detent.authoring.problem import DocumentError
from detent.dispatch.autonomy import AutonomyLevel, StepMode
from detent.flows.playbook.instruction import Edge, InstructionFile
from detent.flows.playbook.reading import read_instruction
from detent.flows.playbook.step_file_cache import (
    InstructionLoader,
    clear_instruction_cache,
    load_instruction_cached,
)
from tests.flows.playbook.bench import PARCELS, step_file, write

WHOLE = """---
name: 02-look-it-up                      # the stem
description: Look the thing up.
version: 1.2.3
aliases: [look, 05]
next:
  - {to: 03-tell, when: {found.state: [open, new]}, reason: found}
  - DONE
available_functions:
  - lookup
  - {name: send_email, description: W., parameters: {type: object, properties: {to: {}}}, into: sent}
needs: [number, mail.subject]
outputs: [found]
call: {lookup: {value: "{{number}}"}, into: found, when: {number: present}, else: {state: none}}
effects:
  - send_email: {template: {body: 05}, to: "{{mail.subject}}", into: {id: message_id}, when: {found: present}}
variant: {short: {found.state: new}}
validator: careful
text_fields: {body: send_email.body}
mode: agent
autonomy: consultant
timeout_s: 2.5
max_attempts: 4
---

# Look

---

It has `---` in it.
"""


def read(text: str | bytes, stem: str = "01-a") -> tuple[InstructionFile | None, list[tuple[str, int]]]:
    raw = text.encode() if isinstance(text, str) else text
    found = read_instruction(raw, Path(f"{stem}.md"))
    return found.instruction, [(one.code, one.place.line) for one in found.problems]


def test_every_key_of_the_front_matter_is_there_with_its_line():
    """W-08: an `InstructionFile` has everything the file says."""
    step, problems = read(WHOLE, "02-look-it-up")
    assert problems == []
    assert (step.id, step.name, step.description, step.version) == (
        "02-look-it-up", "02-look-it-up", "Look the thing up.", "1.2.3",
    )  # fmt: skip
    assert step.aliases == ("look", "05")
    assert step.names == ("02-look-it-up", "look-it-up", "look", "05")
    assert step.next == (Edge("03-tell", {"found.state": ["open", "new"]}, "found"), Edge("DONE"))
    first, second = step.available_functions
    assert (first.name, first.description, first.parameters) == ("lookup", None, None)
    assert second.parameters == {"type": "object", "properties": {"to": {}}}
    assert second.into == {"sent": ""}
    assert (step.needs, step.outputs) == (("number", "mail.subject"), ("found",))
    (call,) = step.call
    assert (call.function, call.args, call.into) == ("lookup", {"value": "{{number}}"}, "found")
    assert (call.when, call.otherwise) == ({"number": "present"}, {"state": "none"})
    (effect,) = step.effects
    assert (effect.function, effect.args) == ("send_email", {"to": "{{mail.subject}}"})
    assert (effect.templates, effect.into) == ({"body": "05"}, {"id": "message_id"})
    assert effect.when == {"found": "present"}
    assert [(one.name, one.when) for one in step.variant] == [("short", {"found.state": "new"})]
    assert (step.validator, dict(step.text_fields)) == ("careful", {"BODY": "send_email.body"})
    assert (step.mode, step.autonomy) == (StepMode.AGENT, AutonomyLevel.CONSULTANT)
    assert (step.timeout_s, step.max_attempts) == (2.5, 4)
    assert step.body == "# Look\n\n---\n\nIt has `---` in it."
    assert len(step.sha256) == 64
    paths = ("name", "next", "next[1]", "effects[0].send_email.template", "body")
    assert [step.place(path).line for path in paths] == [2, 6, 8, 16, 26]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("---\n", "---   \n", 1),
    ],
)
def test_line_ends_and_byte_order_marks_make_no_difference(change):
    plain, _ = read(WHOLE, "02-look-it-up")
    step, problems = read(change(WHOLE), "02-look-it-up")
    assert problems == []
    assert step.body == plain.body
    assert step.places == plain.places


def test_a_name_may_say_step_before_the_stem():
    step, problems = read(step_file("step-01-a"))
    assert problems == []
    assert (step.id, step.name) == ("01-a", "step-01-a")
    assert "step-01-a" in step.names


def test_a_scenario_file_needs_no_next():
    _, problems = read(step_file("01-a", next="", trigger="spam"))
    assert problems == []


FAULTS = {
    "an empty file": ("", [("P02", 1)]),
    "no front matter": ("Just text.\n", [("P02", 1)]),
    "a blank line first": ("\n---\nname: 01-a\n---\nx", [("P02", 1)]),
    "front matter that is not closed": ("---\nname: 01-a\n\nText.\n", [("P02", 1)]),
    "bad YAML": ("---\nname: 01-a\nnext: [DONE\nversion: 1\n---\nx", [("P03", 4)]),
    "a key said twice": ("---\nname: 01-a\nversion: 1.0.0\nname: 01-a\n---\nx", [("P03", 4)]),
    "a key that is no text": ("---\nname: 01-a\n3: x\n---\nx", [("P03", 3)]),
    "a value that contains itself": ("---\nname: 01-a\nneeds: &a [*a]\n---\nx", [("P03", 3)]),
    "bytes that are no text": (b"---\nname: 01-a\n# caf\xe9\n---\nx", [("P03", 3)]),
    "a character YAML forbids": (b"---\nname: 01-a\nx: \x07\n---\nx", [("P03", 3)]),
    "a list": ("---\n- a\n---\nx", [("P06", 2)]),
    "nothing at all in it": ("---\n---\nx", [("P04", 1)] * 4),
    "no description": (step_file("01-a", description=""), [("P04", 1)]),
    "an empty next": (step_file("01-a", next="[]"), [("P04", 5)]),
    "an edge to nowhere": (step_file("01-a", next="[{reason: x}]"), [("P04", 5)]),
    "a call without into": (step_file("01-a", call="{f: {}}"), [("P04", 6)]),
    "an unknown key": (step_file("01-a", nexte="x"), [("P05", 6)]),
    "an unknown key inside": (step_file("01-a", next="[{to: DONE, wen: {}}]"), [("P05", 5)]),
    "next as text": (step_file("01-a", next="DONE"), [("P06", 5)]),
    "needs as text": (step_file("01-a", needs="mail"), [("P06", 6)]),
    "a need that is not a key": (step_file("01-a", needs="[a..b]"), [("P06", 6)]),
    "a description that is a list": (step_file("01-a", description="[x]"), [("P06", 3)]),
    "attempts that are none": (step_file("01-a", max_attempts="0"), [("P06", 6)]),
    "time that is none": (step_file("01-a", timeout_s="-1"), [("P06", 6)]),
    "two handlers": (step_file("01-a", handler="x", call="[]"), [("P06", 7)]),
    "two functions in one call": (step_file("01-a", call="{f: {}, g: {}, into: x}"), [("P06", 6)]),
    "text fields that name no argument": (step_file("01-a", text_fields="{BODY: body}"), [("P06", 6)]),
    "another name than the file's": (step_file("01-b"), [("P07", 2)]),
    "a version of two parts": (step_file("01-a", version="1.0"), [("P08", 4)]),
    "a version with letters": (step_file("01-a", version="1.0.x"), [("P08", 4)]),
    "no text": (step_file("01-a", body=" "), [("P09", 6)]),
    "a function without description": (
        step_file("01-a", available_functions="[{name: f}]"), [("P15", 6)],
    ),
    "a function with a bad schema": (
        step_file("01-a", available_functions="[{name: f, description: d, parameters: {type: objekt}}]"),
        [("P15", 6)],
    ),
    "a function with a schema of a list": (
        step_file("01-a", available_functions="[{name: f, description: d, parameters: {type: array}}]"),
        [("P15", 6)],
    ),
    "a condition that is a text": (step_file("01-a", next="[{to: DONE, when: yes please}]"), [("P19", 5)]),
    "an empty condition": (step_file("01-a", next="[{to: DONE, when: {}}]"), [("P19", 5)]),
    "a condition with a mapping": (step_file("01-a", next="[{to: DONE, when: {a: {b: 1}}}]"), [("P19", 5)]),
    "a condition with no values": (step_file("01-a", next="[{to: DONE, when: {a: []}}]"), [("P19", 5)]),
    "an unknown mode": (step_file("01-a", mode="agnet"), [("P20", 6)]),
    "an unknown level": (step_file("01-a", autonomy="boss"), [("P20", 6)]),
    "a level for nobody": (step_file("01-a", mode="deterministic", autonomy="approver"), [("P20", 7)]),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_file_is_told_with_its_line(fault):
    """W-09, W-10."""
    text, expected = FAULTS[fault]
    assert read(text)[1] == expected


def test_the_nearest_key_is_named():
    found = read_instruction(step_file("01-a", nedes="[x]").encode(), Path("01-a.md"))
    (problem,) = found.problems
    assert str(problem) == "01-a.md:6:1: P05 'nedes' is not a key of a step file. Did you mean 'needs'?"


class TestLoading:
    def test_a_step_is_found_by_its_id_and_by_everything_else_it_goes_by(self):
        """W-08."""
        loader = InstructionLoader(PARCELS)
        step = loader.load_step_instruction("02-tell-delay")
        assert loader.load_step_instruction("tell-delay") is step
        assert loader.load_step_instruction("Tell-Delay") is step
        assert load_instruction_cached(PARCELS / "steps" / "02-tell-delay.md") is step

    def test_a_written_alias_is_found_too(self, tmp_path):
        write(tmp_path, {"01-a": step_file("01-a", aliases="[first]"), "02-b": step_file("02-b")})
        assert InstructionLoader(tmp_path).load_step_instruction("FIRST").id == "01-a"

    def test_a_step_that_is_not_there_is_told_with_those_that_are(self):
        with pytest.raises(DocumentError) as caught:
            InstructionLoader(PARCELS).load_step_instruction("02-tell-dealy")
        (problem,) = caught.value.problems
        assert (problem.place.file, problem.code) == ("parcels/steps/02-tell-dealy.md", "P01")
        assert "Did you mean '02-tell-delay'?" in str(problem)
        assert caught.value.exit_code == 2

    def test_a_file_with_faults_cannot_be_loaded(self, tmp_path):
        write(tmp_path, {"01-a": step_file("01-a", version="1", description="")})
        with pytest.raises(DocumentError) as caught:
            InstructionLoader(tmp_path).load_step_instruction("01-a")
        assert [one.code for one in caught.value.problems] == ["P04", "P08"]

    def test_a_file_is_read_once_whoever_asks(self, tmp_path):
        """W-12: also when many ask at the same time."""
        folder = write(tmp_path, {"01-a": step_file("01-a")})
        path = folder / "steps" / "01-a.md"
        found: list[InstructionFile] = []
        start = threading.Barrier(8)

        def ask():
            start.wait()
            found.append(load_instruction_cached(path))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(one is found[0] for one in found)
        path.write_text(step_file("01-a", description="Other words."), encoding="utf-8")
        assert load_instruction_cached(path) is found[0]
        clear_instruction_cache()
        assert load_instruction_cached(path).description == "Other words."

    def test_an_overlay_replaces_and_adds(self, tmp_path):
        write(tmp_path / "main", {"01-a": step_file("01-a"), "02-b": step_file("02-b")})
        write(
            tmp_path / "more", {"02-b": step_file("02-b", description="Another."), "03-c": step_file("03-c")}
        )
        loader = InstructionLoader(tmp_path / "main", [tmp_path / "more"])
        assert list(loader.files()) == ["01-a", "02-b", "03-c"]
        assert loader.load_step_instruction("b").description == "Another."
        assert loader.shown(loader.files()["02-b"]) == "more/steps/02-b.md"
