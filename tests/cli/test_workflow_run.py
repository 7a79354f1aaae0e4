"""`detent workflow run`, and the engine's commands on such runs; end to end through the real program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE
from tests.examples import ALL

pytestmark = pytest.mark.slow

SHOP = '''
"""Actions of a small shop: everything it does is a line in a file."""

import asyncio
from pathlib import Path

from detent import Hold, tool
from detent.flows.workflow.registry import action, agent, prerequisite


@tool("shop.put")
def put_line(text: str) -> dict:
    with Path("log.txt").open("a") as file:
        file.write(f"+{text}\\n")
    return {"line": text}


@tool("shop.take")
def take_line(text: str) -> dict:
    with Path("log.txt").open("a") as file:
        file.write(f"-{text}\\n")
    return {}


@action("put", intent="Put the text on the list that the shop keeps of texts.", effects=["shop.put"],
        rollback="unput")
async def put(ctx, text: str) -> dict:
    while Path(f"wait-{text}").exists():
        Path(f"at-{text}").touch()
        await asyncio.sleep(0.02)
    return {"text": text, "line": ctx.propose("shop.put", text=text).line}


@action("unput", intent="Take the text off the list that the shop keeps of texts.", effects=["shop.take"])
async def unput(ctx, text: str) -> dict:
    ctx.propose("shop.take", text=text)
    return {}


@action("stumble", intent="Fail as long as there is a file of that name in the folder.")
def stumble(file: str = "trouble") -> dict:
    if Path(file).exists():
        raise ValueError(f"{file} is in the way")
    return {"ok": True}


@action("ask", intent="Ask a person whether it may go on with its work.", holds=True)
async def ask(ctx, question: str) -> dict:
    if not ctx.answered("ok"):
        return Hold("ok", question=question, choices=["yes", "no"])
    return {"said": ctx.answer("ok")}


@action("echo", intent="Give back what was given to it without any change.")
def echo(value) -> dict:
    return {"value": value}


@prerequisite("key", remediation="Make a file named key.")
def key():
    return Path("key").exists(), "there is no key"
'''

LINE = """
version: "1.0"
name: line
inputs: {who: {type: string, default: you}, many: {type: integer, default: 1}}
steps:
  - {name: one, type: python, action: put, kwargs: {text: "one ${{ inputs.who }}"}}
  - {name: spot, type: checkpoint}
  - {name: two, type: python, action: put, kwargs: {text: "two ${{ inputs.who }}"}}
  - {name: last, type: python, action: stumble}
outputs: {who: "${{ inputs.who }}", many: "${{ inputs.many }}", line: "${{ steps.two.output.line }}"}
"""

DEEP = """
version: "1.0"
name: deep
inputs: {names: {type: array, default: [a, b, c]}}
steps:
  - {name: first, type: python, action: put, kwargs: {text: first}}
  - name: each
    type: loop
    for_each: inputs.names
    steps:
      - {name: head, type: python, action: put, kwargs: {text: "head ${{ item }}"}}
      - {name: mark, type: checkpoint, checkpoint_id: "mark-${{ index }}"}
      - {name: tail, type: python, action: put, kwargs: {text: "tail ${{ item }}"}}
  - {name: below, type: subworkflow, workflow: part, inputs: {word: deep}}
  - {name: last, type: python, action: stumble}
"""

PART = """
version: "1.0"
name: part
inputs: {word: {type: string}}
steps:
  - {name: begin, type: python, action: put, kwargs: {text: "begin ${{ inputs.word }}"}}
  - {name: middle, type: checkpoint}
  - {name: end, type: python, action: put, kwargs: {text: "end ${{ inputs.word }}"}}
"""

ASKING = """
version: "1.0"
name: asking
inputs: {names: {type: array, default: [a, b]}}
steps:
  - name: each
    type: loop
    for_each: inputs.names
    parallel: true
    steps:
      - {name: put, type: python, action: put, kwargs: {text: "${{ item }}"}}
      - name: sure
        type: python
        action: ask
        when: item == 'b'
        kwargs: {question: "Is ${{ item }} fine?"}
  - {name: after, type: python, action: put, kwargs: {text: after}}
"""


@pytest.fixture(autouse=True)
def project(folder: Path) -> Path:
    """A project with actions of its own and four workflows."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "detent.yaml").write_text("plugins: [shop.py]\n")
    for name, text in (("line", LINE), ("deep", DEEP), ("part", PART), ("asking", ASKING)):
        write(folder, name, text)
    return folder


def write(folder: Path, name: str, text: str) -> Path:
    """Write a workflow of the project."""
    file = folder / ".detent" / "workflows" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def log(folder: Path) -> list[str]:
    """What the shop did."""
    file = folder / "log.txt"
    return file.read_text().splitlines() if file.exists() else []


def edit(folder: Path, name: str, old: str, new: str) -> None:
    """Change a workflow's file."""
    file = folder / ".detent" / "workflows" / f"{name}.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture
def killed(folder: Path, spawn):
    """Run a workflow in a process of its own and kill it while a text is about to be put."""

    def kill(text: str, *args: str) -> None:
        (folder / f"wait-{text}").touch()
        process = spawn("workflow", "run", *args)
        wait_for(folder / f"at-{text}", process)
        process.kill()
        (folder / f"wait-{text}").unlink()
        (folder / f"at-{text}").unlink()

    return kill


def wait_for(file: Path, process) -> None:
    """Wait until a file is there."""
    ready = threading.Event()
    for _ in range(1500):
        if file.exists():
            return
        assert process.process.poll() is None, process.so_far()
        ready.wait(0.02)
    raise AssertionError(process.so_far())


# -- running ------------------------------------------------------------------------------------------------


def test_a_run_shows_its_steps_and_what_it_gave(detent, folder):
    """D-78: exit code 0."""
    said = detent("workflow", "run", "line", "--id", "r1")
    assert (said.code, said.err) == (0, "")
    assert said.lines[0] == "line r1"
    shown = [line.split()[:2] for line in said.lines[1:5]]
    assert shown == [["✓", "one"], ["✓", "spot"], ["✓", "two"], ["✓", "last"]]
    assert "saved as 'spot'" in said.lines[2]
    assert said.lines[5].startswith("succeeded · ")
    assert said.lines[6:] == ["  who   you", "  many  1", "  line  two you"]
    assert log(folder) == ["+one you", "+two you"]


def test_as_json_it_is_the_result_and_nothing_else(detent):
    result = detent("workflow", "run", "line", "--json").json
    assert (result["workflow_name"], result["status"], result["success"]) == ("line", "succeeded", True)
    assert result["final_output"] == {"who": "you", "many": 1, "line": "two you"}
    assert [one["path"] for one in result["step_results"]] == ["one", "spot", "two", "last"]


def test_a_failed_run_shows_the_error_rolls_back_and_exits_with_1(detent, folder):
    """D-69, D-78: exit code 1."""
    (folder / "trouble").touch()
    said = detent("workflow", "run", "deep", "-i", 'names=["a"]', "--id", "r1")
    assert said.code == 1
    assert "  ✗ last" in said.out
    assert [line.strip() for line in said.lines if "↶" in line] == [
        "↶ below/end: unput", "↶ below/begin: unput", "↶ each/[0]/tail: unput", "↶ each/[0]/head: unput",
        "↶ first: unput",
    ]  # fmt: skip
    assert said.out.count("ValueError: trouble is in the way") == 1
    assert said.lines[-1] == "  detent why r1"
    did = ["first", "head a", "tail a", "begin deep", "end deep"]
    assert log(folder) == [f"+{one}" for one in did] + [f"-{one}" for one in did[::-1]]


def test_inputs_come_from_a_file_and_the_command_line_which_is_stronger(detent, folder):
    (folder / "in.yaml").write_text("who: Ada\nmany: 3\n")
    said = detent("workflow", "run", "line", "--input-file", "in.yaml", "-i", "who=Bob", "--json")
    assert said.json["final_output"]["who"] == "Bob"
    assert detent("workflow", "run", "line", "--dry-run", "--input-file", "in.yaml", "--json").json[
        "inputs"
    ] == {
        "who": "Ada",
        "many": 3,
    }


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["-i", "hwo=x", "-i", "many=some"], ["2 problems", "hwo", "Did you mean 'who'?", "many"]),
        (["-i", "who"], ["-i takes NAME=VALUE"]),
        (["--input-file", "nowhere.json"], ["nowhere.json"]),
        (["--restart", "--from", "spot"], ["--restart and --from cannot be combined"]),
        (["--from-run", "r1"], ["--step"]),
        (["--step", "9"], ["steps 1 to 4; there is no step 9"]),
        (["--step", "tow"], ["no step 'tow'", "Did you mean 'two'?"]),
        (["--from", "spto"], ["no checkpoint 'spto'", "None was saved yet"]),
        (["--shadow", "nope"], ["no step 'nope' to shadow"]),
    ],
)
def test_what_cannot_be_understood_is_refused_before_anything_is_done(detent, folder, args, told):
    """D-64, D-78: exit code 2."""
    said = detent("workflow", "run", "line", *args)
    assert said.code == 2
    for words in told:
        assert words in said.err
    assert log(folder) == []


def test_a_file_with_errors_is_refused_with_all_of_them(detent, folder):
    """D-78: exit code 2."""
    write(
        folder, "line", LINE.replace("action: stumble", "action: stumbel").replace("inputs.who", "inputs.hwo")
    )
    said = detent("workflow", "run", "line")
    assert said.code == 2
    assert "E001" in said.err
    assert "E007" in said.err
    assert log(folder) == []


def test_a_missing_prerequisite_stops_it_before_the_first_step(detent, folder):
    """D-72, D-78: exit code 3."""
    write(
        folder,
        "line",
        LINE.replace("action: stumble}", "action: stumble, requires: [key, 'command:nosuchprogram']}"),
    )
    said = detent("workflow", "run", "line")
    assert said.code == 3
    assert said.err.count("Make a file named key.") == 1  # told together, and not once more each
    assert "nosuchprogram" in said.err
    assert "last" in said.err
    assert log(folder) == []
    assert not (folder / ".detent" / "detent.db").exists() or detent("runs").out == "No runs.\n"


def test_the_same_by_other_names(detent, folder):
    """D-78: `detent run workflow NAME`, `python -m detent`."""
    assert detent("run", "workflow", "line", "-i", "who=x", "--json").json["success"] is True
    ran = subprocess.run(
        [sys.executable, "-m", "detent", "workflow", "run", "line", "-i", "who=y", "-q"],
        capture_output=True, text=True, cwd=folder, check=True,
    )  # fmt: skip
    assert detent("show", ran.stdout.strip(), "--json").json["status"] == "succeeded"


# -- looking before leaping ---------------------------------------------------------------------------------


def test_a_dry_run_calls_no_handler_no_executor_and_no_effect(detent, folder):
    """D-78: not even a store is made; the steps would each leave a trace."""
    write(folder, "line", LINE.replace("steps:\n", "steps:\n  - {name: said, type: agent, agent: scribe}\n"))
    (folder / "shop.py").write_text(
        SHOP
        + """

@agent("scribe", instructions="Write one sentence.")
def scribe(context):
    Path("asked.txt").touch()
    return "write"


def made(options):
    Path("asked.txt").touch()
    raise AssertionError("an executor was made")
"""
    )
    said = detent("workflow", "run", "line", "--dry-run", "-i", "who=Ada")
    assert said.code == 0, said.err
    assert '  who = "Ada"' in said.lines
    steps = [line.split()[0] for line in said.lines if line.split()[1:2] in (["python"], ["checkpoint"])]
    assert steps == ["one", "spot", "two", "last"]
    assert said.lines[-1] == "Nothing was run."
    assert log(folder) == []
    assert not (folder / "asked.txt").exists()
    assert not (folder / ".detent" / "detent.db").exists()
    plan = detent("workflow", "run", "line", "--dry-run", "--json").json["plan"]
    assert [one["path"] for one in plan] == ["said", "one", "spot", "two", "last"]
    assert detent("workflow", "run", "line", "--dry-run", "-i", "many=x").code == 2


# -- resuming -----------------------------------------------------------------------------------------------


def test_a_killed_run_goes_on_after_its_last_finished_step(detent, folder, killed):
    """D-68"""
    killed("tail b", "deep")
    assert log(folder) == ["+first", "+head a", "+tail a", "+head b"]
    said = detent("workflow", "run", "deep")
    assert said.code == 0
    assert "(continuing in 'each')" in said.lines[0]
    assert said.lines[1].split() == ["▸", "each", "goes", "on"]
    assert log(folder) == [
        "+first", "+head a", "+tail a", "+head b", "+tail b", "+head c", "+tail c",
        "+begin deep", "+end deep",
    ]  # fmt: skip
    assert detent("workflow", "run", "deep", "--json").json["success"] is True
    assert len(log(folder)) == 18, "a finished run is not gone on with: another one was begun"


def test_rollbacks_registered_before_the_kill_run_after_the_resume(detent, folder, killed):
    """D-69"""
    (folder / "trouble").touch()
    killed("end deep", "deep", "-i", 'names=["a"]')
    assert detent("workflow", "run", "deep", "-i", 'names=["a"]').code == 1
    did = ["first", "head a", "tail a", "begin deep", "end deep"]
    assert log(folder) == [f"+{one}" for one in did] + [f"-{one}" for one in did[::-1]]


def test_other_inputs_are_another_run(detent, folder, killed):
    killed("two you", "line")
    assert detent("workflow", "run", "line", "-i", "who=Bob").code == 0
    assert log(folder) == ["+one you", "+one Bob", "+two Bob"]
    rows = detent("runs", "--json").json["runs"]
    assert sorted(row["status"] for row in rows) == ["running", "succeeded"]


def test_restart_cancels_the_unfinished_run_and_begins_anew(detent, folder, killed):
    killed("two you", "line")
    (old,) = [row["id"] for row in detent("runs", "--json").json["runs"]]
    said = detent("workflow", "run", "line", "--restart")
    assert said.code == 0
    assert said.lines[0] == f"Cancelled the unfinished run {old}."
    assert log(folder) == ["+one you", "+one you", "+two you"]
    shown = detent("show", old, "--json").json
    assert (shown["status"], shown["reason"]) == ("cancelled", "restarted")


def test_a_changed_file_is_refused_with_the_difference_and_the_ways_out(detent, folder, killed):
    """D-73"""
    killed("two Ada", "line", "-i", "who=Ada")
    (run,) = [row["id"] for row in detent("runs", "--json").json["runs"]]
    edit(folder, "line", '"two ${{ inputs.who }}"', '"TWO ${{ inputs.who }}"')
    said = detent("workflow", "run", "line", "-i", "who=Ada")
    assert said.code == 2
    assert f"Run {run} of 'line' was begun before its file was changed:" in said.err
    assert "  steps two kwargs text: two ${{ inputs.who }} → TWO ${{ inputs.who }}" in said.err.splitlines()
    assert "To start over: detent workflow run line -i who=Ada --restart" in said.err
    assert "steps two kwargs text" in detent("resume", run).err
    assert log(folder) == ["+one Ada"]
    edit(folder, "line", "TWO", "two")
    assert detent("workflow", "run", "line", "-i", "who=Ada").code == 0
    assert log(folder) == ["+one Ada", "+two Ada"]


def test_a_changed_file_of_a_waiting_run_is_refused_too(detent, folder):
    """D-73"""
    detent("workflow", "run", "asking")
    edit(folder, "asking", "text: after", "text: later")
    said = detent("workflow", "run", "asking")
    assert said.code == 2
    assert "steps after kwargs text: after → later" in said.err
    assert detent("workflow", "run", "asking", "--restart").code == 0


def test_a_changed_file_below_is_refused_with_its_name(detent, folder, killed):
    """D-73"""
    killed("end deep", "deep", "-i", "names=[]")
    edit(folder, "part", '"begin ${{ inputs.word }}"', '"start ${{ inputs.word }}"')
    said = detent("workflow", "run", "deep", "-i", "names=[]")
    assert said.code == 2
    assert "workflow part steps begin kwargs text: begin ${{ inputs.word }} → start" in said.err
    assert log(folder) == ["+first", "+begin deep"]


def test_a_registered_migration_carries_a_run_over(detent, folder, killed):
    """D-73"""
    killed("two Ada", "line", "-i", "who=Ada")
    edit(folder, "line", '"two ${{ inputs.who }}"', '"TWO ${{ inputs.who }}"')
    refused = detent("workflow", "run", "line", "-i", "who=Ada").err
    old = refused.partition("migration from '")[2].partition("'")[0]
    carry = f'DETENT_MIGRATIONS = {{"line": {{"{old}": lambda run: Migration()}}}}'
    migration = f"\nfrom detent import Migration\n\n{carry}\n"
    (folder / "shop.py").write_text(SHOP + migration)
    ran = subprocess.run(
        [sys.executable, "-m", "detent", "workflow", "run", "line", "-i", "who=Ada"],
        capture_output=True, text=True, cwd=folder, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert log(folder) == ["+one Ada", "+TWO Ada"]


def test_a_second_process_leaves_a_run_under_way_alone(detent, folder, spawn):
    (folder / "wait-two you").touch()
    first = spawn("workflow", "run", "line", "--id", "r1")
    wait_for(folder / "at-two you", first)
    said = detent("workflow", "run", "line")
    assert said.code == 1
    assert "Run r1 of the same workflow and inputs is under way in another process" in said.err
    assert "detent show r1 --follow" in said.err
    (folder / "wait-two you").unlink()
    assert first.result().code == 0
    assert log(folder) == ["+one you", "+two you"]


def test_two_processes_that_begin_at_once_begin_one_run(detent, folder, spawn):
    (folder / "wait-two you").touch()
    both = [spawn("workflow", "run", "line"), spawn("workflow", "run", "line")]
    deadline = time.monotonic() + PATIENCE
    while all(process.process.poll() is None for process in both):
        assert time.monotonic() < deadline, "neither gave way to the other"
        time.sleep(0.02)
    (folder / "wait-two you").unlink()
    said = [process.result() for process in both]
    assert sorted(one.code for one in said) == [0, 1], said
    assert log(folder) == ["+one you", "+two you"]
    assert len(detent("runs", "--json").json["runs"]) == 1


def test_two_identical_commands_at_once_are_one_run_however_often(detent, folder, spawn):
    """A workflow over in no time: the second command may come before, during or after the first one's run."""
    for number in range(ROUNDS):
        text = f"round {number}"
        both = [spawn("workflow", "run", "line", "-i", f"who={text}") for _ in range(2)]
        said = [process.result() for process in both]
        assert all(one.code == 0 or "under way in another process" in one.err for one in said), said
        assert log(folder).count(f"+one {text}") == log(folder).count(f"+two {text}") == 1
        assert len(detent("runs", "--json", "--limit", "1000").json["runs"]) == number + 1


ROUNDS = 6 if ALL else 2


def test_a_run_killed_after_its_last_commit_is_shown_and_not_done_again(detent, folder, spawn):
    write(folder, "big", BIG)
    first = spawn_into_a_full_pipe(folder, "workflow", "run", "big", "--json")
    deadline = time.monotonic() + PATIENCE
    while '"succeeded"' not in detent("runs", "--json", "--roots").out:
        assert time.monotonic() < deadline
        assert first.poll() is None
    first.kill()  # it has committed everything and waits for somebody to read what it says
    first.wait()
    (run,) = detent("runs", "--json", "--roots").json["runs"]
    again = detent("workflow", "run", "big", "--json")
    assert again.code == 0
    assert f"Run {run['id']} of the same workflow and inputs has ended" in again.err
    assert again.json["success"]
    assert log(folder) == ["+big"]
    assert detent("workflow", "run", "big", "--json").code == 0
    assert log(folder) == ["+big", "+big"], "it was shown: the same command means a new run"


BIG = """
version: "1.0"
name: big
steps:
  - {name: put, type: python, action: put, kwargs: {text: big}}
  - {name: say, type: python, action: echo, kwargs: {value: VALUE}}
""".replace("VALUE", "x" * 200_000)


def spawn_into_a_full_pipe(folder: Path, *args: str) -> subprocess.Popen[bytes]:
    """The program, with an output that nobody reads: it is held up as soon as it says something long."""
    return subprocess.Popen(
        [sys.executable, "-m", "detent", *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def test_an_id_that_another_run_has_is_refused_and_that_run_is_not_shown_for_it(detent, folder):
    assert detent("workflow", "run", "line", "-i", "who=a", "--id", "r1").code == 0
    said = detent("workflow", "run", "line", "-i", "who=b", "--id", "r1")
    assert said.code == 2
    assert said.err.startswith("Run 'r1' already exists. To see it: detent show r1.")
    assert detent("workflow", "run", "line", "-i", "who=b").code == 0
    assert log(folder) == ["+one a", "+two a", "+one b", "+two b"]


def test_the_same_command_again_right_away_is_another_run(detent, folder, spawn):
    for _ in range(3):
        assert spawn("workflow", "run", "line").result().code == 0
    assert len(detent("runs", "--json", "--roots").json["runs"]) == 3


def test_a_run_that_another_command_has_shown_is_not_shown_again(detent, folder, killed):
    killed("two you", "line", "--id", "r1")
    assert detent("resume", "r1").code == 0
    assert detent("workflow", "run", "line", "--id", "r2").code == 0
    assert len(detent("runs", "--json", "--roots").json["runs"]) == 2


def test_a_run_that_a_worker_finished_after_the_kill_is_shown_once(detent, folder, killed):
    killed("two you", "line", "--id", "r1")
    assert detent("resume", "--all").code == 0
    said = detent("workflow", "run", "line")
    assert (said.code, "r1" in said.out, "has ended" in said.err) == (0, True, True)
    assert log(folder) == ["+one you", "+two you"]


def test_ctrl_c_finishes_the_step_under_way_and_the_run_goes_on_later(detent, folder, spawn):
    """D-78: exit code 130, and no rollback."""
    (folder / "wait-head b").touch()
    process = spawn("workflow", "run", "deep")
    wait_for(folder / "at-head b", process)
    process.signal(signal.SIGINT)
    for _ in range(1500):
        if "Stopping after the steps under way" in process.so_far():
            break
        threading.Event().wait(0.02)
    (folder / "wait-head b").unlink()
    said = process.result()
    assert said.code == 130
    assert "Stopped. The run is kept and can go on: detent resume" in said.err
    assert log(folder) == ["+first", "+head a", "+tail a", "+head b"]
    assert detent("workflow", "run", "deep").code == 0
    assert log(folder)[4:] == ["+tail b", "+head c", "+tail c", "+begin deep", "+end deep"]


# -- from a checkpoint --------------------------------------------------------------------------------------


def test_from_a_checkpoint_of_the_file_itself(detent, folder):
    detent("workflow", "run", "line", "--id", "r1")
    said = detent("workflow", "run", "line", "--from", "spot", "--id", "r2")
    assert (said.code, said.err) == (0, "")
    assert said.lines[0] == "line r2  (from checkpoint 'spot' of r1)"
    assert log(folder) == ["+one you", "+two you", "+two you"]
    assert detent("show", "r2", "--json").json["forked_from"]["run"] == "r1"


def test_from_a_checkpoint_inside_an_iteration(detent, folder):
    detent("workflow", "run", "deep", "--id", "r1")
    before = len(log(folder))
    said = detent("workflow", "run", "deep", "--from", "mark-1", "--id", "r2")
    assert said.code == 0
    assert log(folder)[before:] == ["+tail b", "+head c", "+tail c", "+begin deep", "+end deep"]
    shown = detent("show", "r2", "--json").json
    assert len(shown["data"]["steps/each"]["output"]) == 3


def test_from_a_checkpoint_inside_a_subworkflow(detent, folder):
    detent("workflow", "run", "deep", "--id", "r1")
    before = len(log(folder))
    assert detent("workflow", "run", "deep", "--from", "middle").code == 0
    assert log(folder)[before:] == ["+end deep"]


def test_a_fork_that_fails_undoes_what_its_family_did_before_and_after(detent, folder):
    """D-69"""
    detent("workflow", "run", "deep", "--id", "r1", "-i", 'names=["a"]')
    (folder / "trouble").touch()
    (folder / "log.txt").unlink()
    said = detent("workflow", "run", "deep", "--from", "mark-0", "-i", 'names=["a"]')
    assert (said.code, said.err) == (1, "")
    assert log(folder) == [
        "+tail a", "+begin deep", "+end deep",
        "-end deep", "-begin deep", "-tail a", "-head a", "-first",
    ]  # fmt: skip


def test_what_the_other_run_has_undone_is_said_and_not_undone_again(detent, folder):
    """D-69: none runs twice."""
    (folder / "trouble").touch()
    detent("workflow", "run", "line", "--id", "r1")
    assert log(folder) == ["+one you", "+two you", "-two you", "-one you"]
    said = detent("workflow", "run", "line", "--from", "spot")
    assert said.code == 1
    assert "Run r1 has since undone what these steps did, which count as done here: one." in said.err
    assert log(folder)[4:] == ["+two you", "-two you"]


def test_files_changed_before_the_checkpoint_are_restored_when_the_fork_fails(detent, folder):
    write(
        folder,
        "files",
        """
version: "1.0"
name: files
steps:
  - name: keep
    type: python
    action: write_file
    rollback: restore_file
    kwargs: {path: note.txt, text: new}
  - {name: spot, type: checkpoint}
  - {name: last, type: python, action: stumble}
""",
    )
    (folder / "note.txt").write_text("old")
    assert detent("workflow", "run", "files").code == 0
    assert (folder / "note.txt").read_text() == "new"
    (folder / "trouble").touch()
    assert detent("workflow", "run", "files", "--from", "spot").code == 1
    assert (folder / "note.txt").read_text() == "old"


def test_a_checkpoint_of_other_inputs_or_of_nobody_is_refused(detent, folder):
    detent("workflow", "run", "line")
    said = detent("workflow", "run", "line", "--from", "spot", "-i", "who=Bob")
    assert said.code == 2
    assert "was saved with other inputs" in said.err
    said = detent("workflow", "run", "line", "--from", "sport")
    assert said.code == 2
    assert "Did you mean 'spot'? Saved: spot." in said.err
    assert len(log(folder)) == 2


def test_a_checkpoint_with_nothing_after_it_is_refused(detent, folder):
    write(
        folder,
        "line",
        LINE.replace(
            "  - {name: last, type: python, action: stumble}\n", "  - {name: end, type: checkpoint}\n"
        ),
    )
    detent("workflow", "run", "line")
    said = detent("workflow", "run", "line", "--from", "end")
    assert said.code == 2
    assert "nothing is left to be done" in said.err


# -- one step -----------------------------------------------------------------------------------------------


def test_one_step_alone_by_name_and_by_number(detent, folder):
    said = detent("workflow", "run", "line", "--step", "two", "-i", "who=Ada")
    assert said.code == 0
    assert "(step 'two' alone)" in said.lines[0]
    assert detent("workflow", "run", "line", "--step", "1").code == 0
    assert log(folder) == ["+two Ada", "+one you"]


def test_one_step_ignores_its_when_and_reads_other_steps_from_a_run(detent, folder):
    write(
        folder,
        "reads",
        """
version: "1.0"
name: reads
inputs: {names: {type: array, default: [x, y]}}
steps:
  - {name: one, type: python, action: put, kwargs: {text: hello}}
  - name: two
    type: python
    action: put
    when: "false"
    kwargs: {text: "${{ steps.one.output.text }} again"}
  - name: each
    type: loop
    for_each: inputs.names
    steps:
      - {name: inner, type: python, action: put, kwargs: {text: "${{ item }} ${{ steps.one.output.text }}"}}
""",
    )
    assert detent("workflow", "run", "reads", "--id", "r1").code == 0
    (folder / "log.txt").unlink()
    said = detent("workflow", "run", "reads", "--step", "two")
    assert said.code == 1
    assert "step 'one'" in said.out
    assert detent("workflow", "run", "reads", "--step", "two", "--from-run", "r1").code == 0
    assert detent("workflow", "run", "reads", "--step", "inner", "--from-run", "r1.each[1]").code == 0
    assert log(folder) == ["+hello again", "+y hello"]
    detent("workflow", "run", "line", "--id", "other")
    said = detent("workflow", "run", "reads", "--step", "two", "--from-run", "other")
    assert said.code == 2
    assert "not of workflow 'reads'" in said.err


def test_one_step_reads_long_values_of_an_iteration_too(detent, folder):
    write(folder, "reads", f"""
version: "1.0"
name: reads
steps:
  - {{name: one, type: python, action: echo, kwargs: {{value: {"long" * 500}}}}}
  - name: each
    type: loop
    for_each: [x]
    steps: [{{name: in, type: python, action: echo, kwargs: {{value: "${{{{ steps.one.output.value }}}}"}}}}]
""")  # fmt: skip
    assert detent("workflow", "run", "reads", "--id", "r1").code == 0
    said = detent("workflow", "run", "reads", "--step", "in", "--from-run", "r1.each[0]", "--json").json
    assert said["final_output"] == {"value": "long" * 500}


# -- waiting ------------------------------------------------------------------------------------------------


def test_a_run_that_waits_says_so_and_release_goes_on_with_the_whole(detent, folder):
    """D-78: a wait is exit code 0."""
    said = detent("workflow", "run", "asking", "--id", "r1")
    assert said.code == 0
    assert said.lines[-2:] == [
        "waiting: Is b fine?", "  detent release 'r1.each[1]' yes --hold ok@6   (or: no)",
    ]  # fmt: skip
    assert detent("workflow", "run", "asking").lines[-2:] == said.lines[-2:], "it still waits"
    resumed = detent("resume", "r1")
    assert (resumed.code, resumed.lines) == (0, said.lines[-2:])
    released = detent("release", "r1.each[1]", "yes", "--hold", "ok@6")
    assert released.code == 0
    assert any(line.split()[:2] == ["✓", "after"] for line in released.lines)
    assert detent("show", "r1", "--json").json["status"] == "succeeded"
    assert sorted(log(folder)) == ["+a", "+after", "+b"]


def test_an_id_for_another_run_of_the_same_inputs_is_refused_with_both_commands(detent, folder):
    detent("workflow", "run", "asking", "--id", "r1")
    refused = detent("workflow", "run", "asking", "--id", "r2")
    assert refused.code == 2
    assert "Run r1 of the same workflow and inputs has not ended" in refused.err
    assert "detent workflow run asking\n" in refused.err
    assert "detent workflow run asking --restart --id r2" in refused.err
    assert [run["id"] for run in detent("runs", "--json", "--roots").json["runs"]] == ["r1"]
    assert detent("workflow", "run", "asking", "--id", "r1").code == 0, "its own id goes on with it"
    assert detent("workflow", "run", "asking", "--restart", "--id", "r2").code == 0
    statuses = {run["id"]: run["status"] for run in detent("runs", "--json", "--roots").json["runs"]}
    assert statuses == {"r1": "cancelled", "r2": "waiting"}


def test_a_parent_whose_child_was_answered_elsewhere_can_be_resumed(detent, folder):
    detent("workflow", "run", "asking", "--id", "r1")
    detent("release", "r1.each[1]", "yes", "--hold", "ok@6", "--detach")
    assert detent("resume", "r1.each[1]").code == 0
    assert detent("show", "r1", "--json").json["status"] == "succeeded"


def test_cancel_ends_it_and_with_rollback_undoes_what_was_done(detent, folder):
    """D-69"""
    detent("workflow", "run", "asking", "--id", "r1")
    said = detent("cancel", "r1", "--rollback")
    assert said.code == 0
    assert sorted(line.strip() for line in said.lines if "↶" in line) == [
        "↶ each/[0]/put: unput", "↶ each/[1]/put: unput",
    ]  # fmt: skip
    assert sorted(log(folder)) == ["+a", "+b", "-a", "-b"]
    assert detent("show", "r1", "--json").json["status"] == "cancelled"
    assert detent("show", "r1.each[1]", "--json").json["status"] == "cancelled"
    detent("workflow", "run", "asking", "--id", "r2")
    assert detent("cancel", "r2").code == 0
    assert len(log(folder)) == 6, "without it nothing is undone"
    refused = detent("cancel", "r2", "--rollback")
    assert "already ended" in refused.err


# -- the engine's commands ----------------------------------------------------------------------------------


def test_runs_show_why_diagram_and_fork_work_on_runs_and_what_is_below_them(detent, folder):
    detent("workflow", "run", "deep", "--id", "r1", "-i", 'names=["a"]')
    assert [row["id"] for row in detent("runs", "--roots", "--json").json["runs"]] == ["r1"]
    below = {row["id"]: row["flow"] for row in detent("runs", "--json").json["runs"]}
    assert below == {"r1": "deep", "r1.each[0]": "deep.each", "r1.below": "part"}
    for run in below:
        assert detent("show", run).code == 0
        assert detent("why", run).code == 0
        assert detent("diagram", run).code == 0
    (folder / "log.txt").unlink()
    said = detent("fork", "r1", "--at", "below", "--id", "r2")
    assert said.code == 0
    assert log(folder) == ["+begin deep", "+end deep"]
    assert detent("show", "r2.each[0]", "--json").json["status"] == "succeeded"


def test_resume_takes_up_a_killed_run_and_one_below_it(detent, folder, killed):
    killed("head b", "deep", "-i", 'names=["a", "b"]', "--id", "r1")
    said = detent("resume", "r1")
    assert said.code == 0
    assert any(line.split()[:2] == ["✓", "head"] for line in said.lines)
    assert log(folder).count("+head a") == 1


def test_resume_all_takes_up_whole_families(detent, folder, killed):
    killed("end deep", "deep", "-i", 'names=["a"]', "--id", "r1")
    assert detent("resume", "--all").code == 0
    assert detent("show", "r1", "--json").json["status"] == "succeeded"
    assert log(folder) == ["+first", "+head a", "+tail a", "+begin deep", "+end deep"]


# -- places -------------------------------------------------------------------------------------------------


def test_a_file_outside_the_project_runs_waits_and_goes_on(detent, folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "far.yaml"
    outside.write_text(ASKING.replace("name: asking", "name: far"))
    assert detent("workflow", "run", str(outside), "--id", "r1").code == 0
    assert detent("release", "r1.each[1]", "yes", "--hold", "ok@6").code == 0
    assert detent("show", "r1", "--json").json["status"] == "succeeded"


def test_a_run_whose_file_is_gone_can_be_looked_at_and_cancelled(detent, folder):
    file = folder / "here.yaml"
    file.write_text(ASKING.replace("name: asking", "name: here"))
    detent("workflow", "run", "here.yaml", "--id", "r1")
    file.unlink()
    said = detent("release", "r1.each[1]", "yes", "--hold", "ok@6")
    assert said.code == 2
    assert "was run from ./here.yaml, which is not there any more" in said.err
    assert detent("workflow", "run", "here.yaml").code == 2
    assert detent("show", "r1").code == 0
    assert detent("why", "r1").code == 0
    assert detent("cancel", "r1").code == 0


def test_without_a_store_the_commands_say_so(detent, folder):
    for command in (["show", "r1"], ["resume", "r1"], ["resume", "--all"]):
        said = detent(*command)
        assert said.code != 0
        assert "There is no store at .detent/detent.db yet." in said.err
    assert "None was saved yet" in detent("workflow", "run", "line", "--from", "spot").err


# -- who performs the steps ---------------------------------------------------------------------------------


def test_deterministic_reaches_everything_below(detent, folder):
    """D-60"""
    (folder / "detent.yaml").write_text(
        "plugins: [shop.py]\nsteps:\n  end: {mode: agent, autonomy: consultant}\n"
    )
    result = detent("workflow", "run", "deep", "-i", 'names=["a"]', "--deterministic", "--json").json
    (step,) = [one for one in result["step_results"] if one["path"] == "below/end"]
    assert (step["dispatch"]["mode_used"], step["dispatch"]["forced"]) == ("deterministic", True)
    assert not step["dispatch"].get("fallback_used")


def test_shadow_names_steps_anywhere_in_the_file(detent, folder):
    said = detent("workflow", "run", "deep", "-i", 'names=["a"]', "--shadow", "head,last", "--json")
    assert said.code == 0
    steps = {one["path"]: one["dispatch"] for one in said.json["step_results"]}
    assert steps["each/[0]/head"]["shadow"] is True
    assert not steps["first"].get("shadow")
    assert detent("workflow", "run", "deep", "--shadow", "all", "-q").code == 0


# -- long loops ---------------------------------------------------------------------------------------------


def test_a_long_loop_says_how_far_it_is_and_what_failed(detent, folder):
    write(
        folder,
        "long",
        """
version: "1.0"
name: long
inputs: {items: {type: array}}
steps:
  - name: each
    type: loop
    for_each: inputs.items
    parallel: true
    steps:
      - {name: look, type: python, action: stumble, kwargs: {file: "${{ item }}"}}
      - {name: say, type: python, action: echo, kwargs: {value: "${{ item }}"}}
""",
    )
    (folder / "in.json").write_text(json.dumps({"items": [f"item-{n}" for n in range(300)]}))
    said = detent("workflow", "run", "long", "--input-file", "in.json")
    assert said.code == 0
    assert len(said.lines) < 20
    assert "    · 30 of 300" in said.lines
    assert "    · 300 of 300" in said.lines
    (folder / "item-250").touch()
    said = detent("workflow", "run", "long", "--input-file", "in.json")
    assert said.code == 1
    assert len(said.lines) < 30
    assert any("✗ each/[250]/look" in line and "item-250 is in the way" in line for line in said.lines)


def test_lines_of_iterations_side_by_side_say_which_one(detent, folder):
    said = detent("workflow", "run", "asking", "-i", 'names=["a", "c"]')
    # Which of them is through first is nobody's promise.
    assert sorted(line.split()[:3] for line in said.lines if " put " in f"{line} ") == [
        ["✓", "[0]", "put"], ["✓", "[1]", "put"],
    ]  # fmt: skip


def test_what_a_step_says_stands_above_the_line_of_the_step(detent, folder):
    (folder / "tell.yaml").write_text(
        'version: "1.0"\nname: tell\nsteps:\n'
        "  - {name: say, type: python, action: log_message, kwargs: {message: good morning}}\n",
        encoding="utf-8",
    )
    said = detent("workflow", "run", "tell.yaml")
    lines = [line.strip() for line in said.lines]
    at = lines.index("│ good morning")
    assert lines[at + 1].startswith("✓ say")
    assert not any("goes on" in line for line in lines)


# -- what lies beside the store -----------------------------------------------------------------------------

FILES = """
version: "1.0"
name: files
steps:
  - name: keep
    type: python
    action: write_file
    rollback: restore_file
    kwargs: {path: note.txt, text: new}
  - {name: spot, type: checkpoint}
  - {name: wait, type: python, action: ask, when: "false", kwargs: {question: "Well?"}}
  - {name: last, type: python, action: stumble}
"""


def kept(folder: Path, kind: str, run: str = "r1") -> int:
    """How many files a run keeps of a kind."""
    return sum(1 for one in (folder / ".detent" / kind / run).rglob("*") if one.is_file())


def test_a_run_that_succeeded_keeps_only_what_a_fork_may_need(detent, folder):
    write(folder, "files", FILES)
    (folder / "note.txt").write_text("old")
    (folder / "trouble").touch()
    assert detent("workflow", "run", "files", "--id", "r0").code == 1
    assert kept(folder, "footprints", "r0") > 0, "one that failed is left as it is"
    (folder / "trouble").unlink()
    assert detent("workflow", "run", "files", "--id", "r1").code == 0
    assert kept(folder, "footprints") == 0
    assert kept(folder, "backups") == 2
    (folder / "trouble").touch()
    assert detent("workflow", "run", "files", "--from", "spot").code == 1
    assert (folder / "note.txt").read_text() == "old"


def test_purge_takes_the_files_of_a_run_along_and_a_fork_is_told_so(detent, folder):
    write(folder, "files", FILES)
    (folder / "note.txt").write_text("old")
    detent("workflow", "run", "files", "--id", "r1")
    said = detent("purge", "r1")
    assert said.out == "1 value, 2 files dropped.\n"
    assert detent("purge", "r1", "--json").json == {"dropped": 0, "files": 0, "kept": []}
    (folder / "trouble").touch()
    said = detent("workflow", "run", "files", "--from", "spot", "--json").json
    assert [one["step_name"] for one in said["rollback_errors"]] == ["keep"]
    assert "purged" in said["rollback_errors"][0]["error"]
    assert (folder / "note.txt").read_text() == "new"


def test_what_a_rollback_may_need_is_not_purged(detent, folder):
    write(folder, "files", FILES.replace('when: "false", ', 'when: "inputs.ask", ').replace(
        "steps:", "inputs: {ask: {type: boolean, default: true}}\nsteps:"))  # fmt: skip
    (folder / "note.txt").write_text("old")
    detent("workflow", "run", "files", "--id", "r1")
    said = detent("purge", "r1")
    assert said.lines == ["1 value dropped.", "Files are kept for r1: it has not ended."]
    detent("purge", "--older", "0s")
    assert (kept(folder, "backups"), kept(folder, "footprints")) == (2, 1)
    detent("fork", "r1", "--at", "wait", "--id", "r2", "--detach")
    assert detent("cancel", "r1").code == 0
    assert detent("purge", "r1").lines[1:] == ["Files are kept for r1: r2 has not ended."]
    detent("purge", "--older", "0s")
    assert kept(folder, "backups") == 2, "r2 may have to bring it back"
    assert detent("cancel", "r2", "--rollback").code == 0
    assert (folder / "note.txt").read_text() == "old"
    detent("purge", "--older", "0s")
    assert kept(folder, "backups") == 1, "r1 was only cancelled: it could be reopened"
    assert detent("purge", "r1").lines == ["0 values, 2 files dropped."]
    assert kept(folder, "footprints", "r1") == 0


def test_rolling_one_release_back_leaves_the_result_of_another_alone(detent, folder):
    """Ids with dots as people write them: each run keeps its own copies of what it replaced."""
    write(folder, "notes", RELEASE)
    (folder / "note.txt").write_text("old")
    first = detent("workflow", "run", "notes", "-i", "text=first", "--id", "release-1.2")
    second = detent("workflow", "run", "notes", "-i", "text=second", "-i", "ask=true", "--id", "release-1.3")
    assert (first.code, second.code) == (0, 0), second.err
    assert (folder / "note.txt").read_text() == "second"
    assert detent("cancel", "release-1.3", "--rollback").code == 0
    assert (folder / "note.txt").read_text() == "first"
    assert "2 files dropped" in detent("purge", "release-1.2").out
    assert detent("purge", "--older", "0s").code == 0


RELEASE = """
version: "1.0"
name: notes
inputs:
  text: {type: string}
  ask: {type: boolean, default: false}
steps:
  - name: keep
    type: python
    action: write_file
    rollback: restore_file
    kwargs: {path: note.txt, text: "${{ inputs.text }}"}
  - {name: wait, type: python, action: ask, when: "inputs.ask", kwargs: {question: "Well?"}}
"""


@pytest.mark.parametrize("run_id", ["order/17", "Ünïcode 5", "a b", "release-1.2"])
def test_an_id_as_people_write_it_works_with_every_command(detent, folder, run_id):
    write(folder, "notes", RELEASE)
    (folder / "note.txt").write_text("old")
    assert detent("workflow", "run", "notes", "-i", "text=new", "-i", "ask=true", "--id", run_id).code == 0
    assert detent("show", run_id).code == 0
    assert detent("why", run_id[:-1]).code == 0
    assert detent("cancel", run_id, "--rollback").code == 0
    assert (folder / "note.txt").read_text() == "old"
    assert [row["id"] for row in detent("runs", "--roots", "--json").json["runs"]] == [run_id]


def test_the_beginning_of_two_ids_is_not_taken_for_the_shorter_one(detent, folder):
    for number, run_id in enumerate(("release-1", "release-1.2")):
        assert detent("workflow", "run", "line", "-i", f"who={number}", "--id", run_id).code == 0
    said = detent("show", "rel")
    assert (said.code, "the beginning of several runs: release-1, release-1.2" in said.err) == (2, True)
    assert detent("show", "release-1", "--json").json["id"] == "release-1"


@pytest.mark.parametrize("run_id", ["", "a\nb", "x" * 300, "a..b"])
def test_an_id_that_would_harm_is_refused_before_anything_is_done(detent, folder, run_id):
    said = detent("workflow", "run", "line", "--id", run_id)
    assert said.code == 2
    assert "cannot be the id of a run" in said.err
    assert log(folder) == []


def test_purging_by_age_takes_files_of_runs_that_are_over(detent, folder):
    write(folder, "files", FILES)
    (folder / "note.txt").write_text("old")
    detent("workflow", "run", "files", "--id", "r1")
    (folder / "trouble").touch()
    detent("workflow", "run", "files", "--id", "r2")
    assert detent("purge", "--older", "30d", "--json").json["files"] == 0
    assert detent("purge", "--older", "0s", "--json").json["files"] >= 3
    assert kept(folder, "backups", "r1") == kept(folder, "backups", "r2") == 1  # that they had some
    assert kept(folder, "footprints", "r2") == 0


# -- forks, cancellations -----------------------------------------------------------------------------------


def test_a_plain_fork_says_what_was_undone_and_undoes_it_no_more(detent, folder):
    """D-69: none runs twice."""
    (folder / "trouble").touch()
    detent("workflow", "run", "line", "--id", "r1")
    said = detent("fork", "r1", "--id", "r2")
    assert said.code == 1
    assert "Run r1 has since undone what these steps did, which count as done here: one, two." in said.err
    assert log(folder) == ["+one you", "+two you", "-two you", "-one you"]
    (folder / "trouble").unlink()
    assert detent("fork", "r1", "--id", "r3").code == 0


def test_a_rollback_asked_for_while_an_effect_is_under_way_elsewhere_undoes_that_too(detent, folder, spawn):
    """D-69: it is finished there, then everything is undone."""
    slow = "    while Path(f'slow-{text}').exists():\n        Path(f'in-{text}').touch()\n"
    slow += "        time.sleep(0.02)\n    with"
    (folder / "shop.py").write_text(
        SHOP.replace("import asyncio", "import asyncio\nimport time", 1)
        .replace("    with", slow, 1)
        .replace('@tool("shop.put")', '@tool("shop.put", blocking=True)')
    )
    (folder / "slow-two you").touch()
    running = spawn("workflow", "run", "line", "--id", "r1")
    wait_for(folder / "in-two you", running)
    cancelling = spawn("cancel", "r1", "--rollback")
    for _ in range(600):
        if "called off, to be undone" in detent("show", "r1").out:
            break
        threading.Event().wait(0.05)
    else:
        raise AssertionError(cancelling.so_far())
    assert log(folder) == ["+one you"]
    (folder / "slow-two you").unlink()
    assert cancelling.process.wait(60) == 0, cancelling.so_far()
    running.process.wait(60)
    assert log(folder) == ["+one you", "+two you", "-two you", "-one you"]
    assert detent("show", "r1", "--json").json["status"] == "cancelled"


def test_a_dry_run_lists_the_steps_of_subworkflows_loops_and_branches(detent, folder):
    write(folder, "part", PART.replace("  - {name: middle, type: checkpoint}\n", """
  - name: pick
    type: branch
    options: [{when: "false", step: {name: no, type: python, action: stumble}},
              {step: {name: yes, type: python, action: echo, kwargs: {value: 1}}}]
"""))  # fmt: skip
    edit(folder, "deep", "      - {name: tail", "      - {name: inner, type: subworkflow, workflow: part, "
         "inputs: {word: x}}\n      - {name: tail")  # fmt: skip
    said = detent("workflow", "run", "deep", "--dry-run")
    assert said.code == 0, said.err
    head = next(index for index, line in enumerate(said.lines) if line.startswith("step "))
    shown = [line[: said.lines[head].index("type")].rstrip() for line in said.lines[head + 1 : -1]]
    part = ["begin", "pick", "  no", "  yes", "end"]
    assert shown == [
        "first", "each", "  head", "  mark", "  inner", *(f"    {one}" for one in part), "  tail",
        "below", *(f"  {one}" for one in part), "last",
    ]  # fmt: skip
    plan = detent("workflow", "run", "deep", "--dry-run", "--json").json["plan"]
    found = {one["path"]: (one["of"], one["depth"], one["effects"]) for one in plan}
    assert found["each/inner/begin"] == ("part", 2, ["shop.put"])
    assert found["below/pick/yes"] == ("part", 2, [])


ORDERS = """\
version: "1.0"
name: orders
steps:
  - {name: read, type: python, action: read_table, kwargs: {path: orders.csv, batch: 2}}
  - {name: rows, type: python, action: check_rows,
     kwargs: {table: "${{ steps.read.output.ref }}", rules: {amount: integer}}}
  - name: each
    type: loop
    for_each: "${{ steps.rows.output.batches }}"
    steps:
      - {name: add, type: python, action: add_up, kwargs: {orders: "${{ item }}"}}
  - {name: all, type: python, action: add_up, kwargs: {orders: "${{ steps.read.output.ref }}"}}
  - {name: raw, type: python, action: size_of, kwargs: {batch: "${{ steps.rows.output.batches[0] }}"}}
outputs:
  parts: "${{ steps.each.output }}"
  total: "${{ steps.all.output.total }}"
  raw: "${{ steps.raw.output.size }}"
"""

OWN_ACTIONS = """
from detent.workflow import Reference, action


@action("add_up", intent="Add up the amounts of the orders given.")
def add_up(orders: list[dict]) -> dict:
    total = sum(int(order["amount"]) for order in orders)
    return {"total": total, "from": [order["name"] for order in orders]}


@action("size_of", intent="Say how many bytes a batch takes.")
def size_of(batch: Reference) -> dict:
    return {"size": batch["size"]}
"""


def test_an_action_of_ones_own_gets_rows_where_steps_pass_references(detent, folder):
    (folder / "orders.csv").write_text("name,amount\nAda,3\nBob,4\nCy,5\n")
    (folder / "own.py").write_text(OWN_ACTIONS)
    (folder / "orders.yaml").write_text(ORDERS)
    ran = detent("workflow", "run", "orders.yaml", "--plugin", "own.py", "--json")
    assert ran.code == 0, ran.err
    output = json.loads(ran.out)["final_output"]
    assert [part["from"] for (part,) in output["parts"]] == [["Ada", "Bob"], ["Cy"]]
    assert output["total"] == 12
    assert output["raw"] > 40
