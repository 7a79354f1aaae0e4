"""Case files: everything wrong with every file is told at once, with its line."""

from __future__ import annotations

import jsonschema
import pytest

from detent.authoring.document import read_value
from detent.authoring.problem import DocumentError
from detent.evals.case import UNSAID, ExpectedStepExecution
from detent.evals.played import Player
from detent.evals.reading import find_case_files, json_schema, read_case, read_cases
from detent.evals.references import stated_path
from tests.evals.conftest import found
from tests.evals.lending import CASES, CHECK, LEND, READ, WAIT, LendingPlayer, write_cases

HEAD = "scenario_id: x\ndescription: d\ncategory: c\n"


class Understanding(LendingPlayer):
    """A player that understands some keys of the input."""

    def __init__(self, *keys: str) -> None:
        super().__init__()
        self.input_keys = keys  # type: ignore[assignment]


def problems(text: str, player: Player | None = None) -> list[tuple[int, str]]:
    found = read_case(text, player or LendingPlayer(), stem="x")[1]
    return [(one.place.line, str(one).partition(": ")[2]) for one in found]


def only(text: str, player: Player | None = None) -> tuple[int, str]:
    (one,) = problems(text, player)
    return one


def test_a_case_is_read_with_everything_it_says(cases):
    """W-23: objects and strings may be mixed, and aliases and beginnings become ids."""
    case = next(case for case in cases() if case.scenario_id == "lend_001")
    assert (case.description, case.category, case.created) == (
        "A book that is there",
        "lending",
        "2026-03-02",
    )
    assert (case.tags, case.required, case.orchestrators) == (("en",), True, ())
    assert case.path_comment == "path: 01 -> 02 -> 03a"
    assert [step.step_name for step in case.expected_steps or ()] == [READ, CHECK, LEND]
    first, second, third = case.expected_steps or ()
    assert first.function_call is None
    assert (second.function_call, second.next_step) == ("find_copy", LEND)
    assert third == ExpectedStepExecution(LEND)
    assert third.function_call is UNSAID
    assert case.expected_output.under("legacy").scenario_instruction_used == "lend-book"
    assert case.expected_output.under("step").scenario_instruction_used == "multi-step"


def test_the_path_a_case_states_is_that_of_its_comment_when_it_expects_none(cases):
    text = "# path: 01 -> 02 -> 03c\n" + HEAD.replace("x", "bare") + "expected_output: {status: succeeded}"
    case = next(case for case in cases(bare=text) if case.scenario_id == "bare")
    assert case.expected_steps is None
    assert stated_path(case, LendingPlayer().contracts(case)) == (READ, CHECK, WAIT)


def test_an_unknown_key_is_told_with_line_and_nearest_name():
    line, message = only(HEAD + "expected_output:\n  status: ok\n  emial_sent: true\n")
    assert line == 6
    assert message.endswith("Did you mean 'email_sent'? (expected_output.emial_sent)")
    line, message = only(HEAD + "expected_output:\n  expected_steps:\n    - {step_name: a, dta: {}}\n")
    assert line == 6
    assert message.endswith("Did you mean 'data'? (expected_output.expected_steps[0].dta)")
    assert only(HEAD + "requird: true\nexpected_output: {status: ok}")[0] == 4


def test_all_problems_of_all_files_are_told_at_once(tmp_path):
    """W-59: a broken case file is reported with its line."""
    (tmp_path / "a.yaml").write_text("scenario_id: a\ncategory: c\nexpected_output:\n  status: 7\n")
    (tmp_path / "b.yaml").write_text("scenario_id: [\n")
    (tmp_path / "c.yaml").write_text(HEAD.replace("x", "c") + "expected_output: {status: ok}\n")
    read = read_cases(tmp_path)
    assert [case.scenario_id for case in read.cases] == ["c"]
    told = [str(problem) for problem in read.problems]
    assert told[0] == "a.yaml:1:1: a case needs 'description': text."
    assert told[1].startswith("a.yaml:4:3: 'status' must be text, but this is a number. Write it as \"7\".")
    assert any(line.startswith("b.yaml:2:1: This is not valid YAML") for line in told)
    with pytest.raises(DocumentError) as caught:
        read.check()
    assert caught.value.exit_code == 2
    assert all(line in str(caught.value) for line in told)


def test_an_id_must_be_the_files_name_and_stand_once(tmp_path):
    text = HEAD + "expected_output: {status: ok}\n"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "x.yaml").write_text(text)
    (tmp_path / "x.yml").write_text(text)
    (tmp_path / "y.yaml").write_text(text)
    told = [str(problem) for problem in read_cases(tmp_path).problems]
    assert told == [
        "x.yml:1:1: 'x' is already in one/x.yaml. (scenario_id)",
        "y.yaml:1:1: scenario_id is 'x', the file's name says 'y'. (scenario_id)",
        "y.yaml:1:1: 'x' is already in one/x.yaml. (scenario_id)",
    ]


@pytest.mark.parametrize("expected", ["{}", "{allow_missing: [title]}", "{status: null}"])
def test_a_case_needs_an_expectation(expected):
    problem = (4, "a case needs at least one expectation. (expected_output)")
    assert only(HEAD + f"expected_output: {expected}") == problem


def test_expecting_that_no_step_runs_is_an_expectation():
    assert problems(HEAD + "expected_output: {expected_steps: []}") == []


@pytest.mark.parametrize("number", ["03", "05", "08", "3", "0x1", "1.0"])
def test_a_bare_number_is_no_name_of_a_step(number):
    quoted = f'"{number}".'
    text = f"{HEAD}expected_output:\n  expected_steps:\n    - {number}\n    - step_name: {number}\n"
    assert [(line, quoted in message) for line, message in problems(text)] == [(6, True), (7, True)]
    for wrong in (
        f"expected_output: {{forbidden_steps: [{number}]}}",
        f"input: {{start_step: {number}}}\nexpected_output: {{status: a}}",
        f"input: {{steps: {{{number}: {{}}}}}}\nexpected_output: {{status: a}}",
    ):
        line, message = only(HEAD + wrong)
        assert (line, quoted in message) == (4, True)
    assert problems(f'{HEAD}expected_output: {{expected_steps: ["{number}"]}}') == []


def test_a_reference_that_means_no_step_or_several_is_told_with_its_line(tmp_path, player):
    text = HEAD + 'expected_output:\n  expected_steps:\n    - "01"\n    - "03"\n    - 03a-lent\n'
    (tmp_path / "x.yaml").write_text(text)
    told = [str(problem) for problem in found(tmp_path, player).problems]
    assert told[0].startswith("x.yaml:7:7: '03' may mean 03a-lend or 03b-ask-title or 03c-wait-list; write")
    assert told[1].startswith(
        "x.yaml:8:7: there is no step '03a-lent'. Did you mean '03a-lend'? Steps: 01-read"
    )


def test_steps_of_agents_are_named_like_any_other_and_a_misspelt_one_is_told(tmp_path, player):
    """Else the agent would never be asked, and the case pass without it."""

    class WithAgents(type(player)):
        input_keys = (*player.input_keys, "steps", "agent_replies")

    text = HEAD + (
        "input:\n  steps: {read-request: {mode: agent}, 02-chek: {mode: agent}}\n"
        '  agent_replies:\n    nobody: ["x"]\nexpected_output: {status: a}\n'
    )
    (tmp_path / "x.yaml").write_text(text)
    told = [str(problem) for problem in found(tmp_path, WithAgents()).problems]
    assert [line.split(" Did")[0].split(" Steps")[0] for line in told] == [
        "x.yaml:5:40: there is no step '02-chek'.",
        "x.yaml:7:5: there is no step 'nobody'.",
    ]
    (tmp_path / "x.yaml").write_text(text.replace("02-chek: {", "check-shelf: {").replace("nobody", '"01"'))
    (case,) = found(tmp_path, WithAgents()).check().cases
    assert list(case.input["steps"]) == ["01-read-request", "02-check-shelf"]
    assert list(case.input["agent_replies"]) == ["01-read-request"]


def test_forbidding_what_no_step_may_call_is_told_as_it_could_never_fail(tmp_path, player):
    text = HEAD + "expected_output:\n  forbidden_calls: [send_letter, find_copi]\n"
    (tmp_path / "x.yaml").write_text(text)
    (problem,) = found(tmp_path, player).problems
    assert str(problem).startswith(
        "x.yaml:5:34: no step may call 'find_copi'. Did you mean 'find_copy'? Functions"
    )


def test_steps_that_cannot_be_read_are_a_problem_of_the_case(tmp_path):
    class Broken(LendingPlayer):
        def contracts(self, case):
            raise OSError("no such folder")

    (tmp_path / "x.yaml").write_text(HEAD + "input: {data: {}}\nexpected_output: {status: a}\n")
    (problem,) = read_cases(tmp_path, Broken()).problems
    assert str(problem) == "x.yaml:4:1: its steps cannot be read: OSError: no such folder"


def test_an_input_the_player_does_not_understand_is_an_error():
    text = HEAD + "input: {steps: {}, dta: {}}\nexpected_output: {status: a}"
    told = problems(text, Understanding("data", "failures"))
    assert told == [
        (4, "'steps' is not a key of this suite's input. Known here: data, failures. (input.steps)"),
        (4, "'dta' is not a key of this suite's input. Did you mean 'data'? (input.dta)"),
    ]
    assert (
        problems(HEAD + "input: {whatever: 1}\nexpected_output: {status: a}", Understanding("whatever")) == []
    )


def test_values_of_the_input_are_carried_as_they_are_written():
    text = HEAD + "input: {data: {day: 2026-03-10T08:15:00Z, n: 4, none: null}}\nexpected_output: {status: a}"
    case, _ = read_case(text)
    assert case is not None
    assert case.input == {"data": {"day": "2026-03-10T08:15:00Z", "n": 4, "none": None}}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "input: {failures: {f: [timeout, tiemout]}}",
            "there is no fault 'tiemout'. Did you mean 'timeout'?",
        ),
        ("input: [1]", "'input' must be a mapping, but this is a list."),
        ("input: {data: 1}", "'data' must be a mapping, but this is a number. (input.data)"),
        ("input: {data: []}", "'data' must be a mapping, but this is a list. (input.data)"),
        ("orchestrators: [stp]", "there is no orchestrator 'stp'. Did you mean 'step'?"),
        ("orchestrators: []", "'orchestrators' is empty, so the case would never be played."),
        ("required: 1", "'required' must be true or false, but this is a number."),
        ("required: true\ndeprecated: old", "a deprecated case does not count, so it cannot be required."),
        (
            "tags: [1]",
            "'tags' must be text or a list of texts, but this is a number. Write it as \"1\". (tags[0])",
        ),
    ],
)
def test_wrong_values_are_told(said, told):
    (line, message) = only(f"{HEAD}{said}\nexpected_output: {{status: a}}")
    assert message.startswith(told)
    assert line in (4, 5)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{expected_steps: 1}", "must be a list of steps"),
        ("{fallbacks: [a]}", "must be a mapping, but this is text"),
        ("{expected_steps: [{output_contains: a}]}", "needs 'step_name'"),
        ("{expected_steps: [{step_name: a, function_call: [f], function_args: {x: 1}}]}", "none of them"),
        ("{expected_steps: [{step_name: a, function_call: null, function_args: {}}]}", "calls no function"),
        ("{expected_function_calls: [{arguments: {}}]}", "needs 'function_name'"),
        ("{processing_time_ms: fast}", "must be a number above 0"),
        ("{processing_time_ms: 0}", "must be a number above 0"),
        ("{email_sent: 'yes'}", "must be true or false"),
        ("{context: 3}", "must be a mapping"),
        ("{fallbacks: [{reason: timeout}]}", "needs 'step'"),
        ("{intake: {reason: spam}}", "needs 'decision'"),
        ("{intake: {decision: run, resaon: x}}", "Did you mean 'reason'?"),
        ("{status: a, legacy: {expected_steps: []}}", "is not a key of 'expected_output.legacy'"),
        ("{status: a, status: b}", "The key 'status' is defined twice"),
    ],
)  # fmt: skip
def test_wrong_expectations_are_told(said, told):
    line, message = only(f"{HEAD}expected_output: {said}")
    assert line == 4
    assert told in message


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "a case file holds"),
        ("- 1\n", 1, "a case file holds"),
        ("a: 1\nb: [1\n", 2, "A bracket is not closed"),
        ("a: &x {b: *x}\n", 1, "contains this alias"),
        ("a: !!binary aGk=\n", 1, "!!binary"),
        ("? [1]\n: 2\n", 1, "A key must be text"),
        ("a: 1\n---\nb: 2\n", 2, "one document"),
        ("a: !thing 1\n", 1, "The tag '!thing'"),
        ("a: \x07\n", 1, "U+0007"),
    ],
)
def test_what_is_no_case_at_all_is_told_with_its_line(text, line, told):
    problem = read_case(text)[1][0]
    assert problem.place.line == line
    assert told in problem.message


def test_a_file_that_is_no_text_is_told(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"scenario_id: x\ndescription: \xff\n")
    (problem,) = read_cases(tmp_path).problems
    assert str(problem) == "x.yaml:2:14: The file is not UTF-8 text (byte 28). Save it as UTF-8."


def test_anchors_work_and_merge_keys_are_refused():
    text = "base: &b {status: a}\nexpected_output: *b\n" + HEAD
    case, told = read_case(text)
    assert [problem.message.partition(".")[0] for problem in told] == ["'base' is not a key of a case"]
    assert case is not None
    assert case.expected_output.status == "a"
    _, told = read_case(text.replace("*b", "{<<: *b, end: DONE}"))
    assert "no merge key" in told[0].message


def test_cases_are_found_by_path_and_some_names_are_passed_over(tmp_path):
    for name in (
        "b.yaml",
        "a/z.yml",
        "_draft.yaml",
        "_old/c.yaml",
        "TEMPLATE.yaml.example",
        "x.txt",
        "registry.yaml",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    files = find_case_files(tmp_path, ignore=("registry.yaml",))
    assert [file.relative_to(tmp_path).as_posix() for file in files] == ["a/z.yml", "b.yaml"]


def test_every_case_of_the_desk_states_its_path_in_its_first_comment(tmp_path, player):
    for case in found(write_cases(tmp_path), player).check().cases:
        assert case.path_comment.startswith("path: ")
        stated = [part.split("-")[0] for part in stated_path(case)]
        assert case.path_comment == f"path: {' -> '.join(stated)}"
    assert len(CASES) == 4


def test_the_schema_accepts_the_cases_and_refuses_wrong_ones():
    """One model for the reader and for editors."""
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator = jsonschema.Draft202012Validator(json_schema())
    for text in CASES.values():
        validator.validate(read_value(text, "case"))
    for wrong in (
        "required: 1",
        "tags: 7",
        "categry: x",
        "input: []",
        "expected_output: {expected_steps: [{step: a}]}",
        "expected_output: {intake: {reason: x}}",
        "expected_output: {processing_time_ms: 0}",
    ):
        text = f"{HEAD}{wrong}\n" + ("" if "expected_output" in wrong else "expected_output: {status: a}")
        assert problems(text)
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(read_value(text, "case"))
