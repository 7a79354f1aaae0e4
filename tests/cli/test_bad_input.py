"""Whatever is wrong is told in one sentence, with the right exit code and no traceback."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import Messages

MESSAGES = Messages(Path(__file__).with_name("messages.txt"))


def sentence(said, code: int) -> str:
    """The one line an error is told in."""
    assert said.code == code, said
    assert said.out == ""
    assert "Traceback" not in said.err
    (line,) = said.err.splitlines()
    return line


@pytest.mark.parametrize(
    "args",
    [
        ["run", "onbording", "--plugin", "flow.py"],
        ["run", "gone.py"],
        ["run", "flow.py:onbord"],
        ["run", "flow.py", "--data", '{"a": }'],
        ["run", "flow.py", "--data", "@gone.json"],
        ["run", "flow.py", "--data", "3"],
        ["run", "flow.py", "--data", "[1]"],
        ["run", "flow.py", "--data", '{"a": NaN}'],
        ["run", "flow.py", "--set", "name"],
        ["run", "flow.py", "--budget-steps", "0"],
        ["run", "flow.py", "--batch", "gone.jsonl"],
        ["run", "flow.py", "--batch", "x", "--many", "2"],
        ["run", "flow.py", "--store", "sqlit:x"],
        ["run", "flow.py", "--store", "gone/x.db"],
        ["run", "flow.py", "--store", "."],
        ["run", "flow.py", "--config", "gone.yaml"],
        ["run", "flow.py", "--log-level", "lots"],
        ["run", "flow.py", "--store", "not-a-store.txt"],
        ["show", "r1"],
        ["resume"],
        ["runs", "--since", "soon"],
        ["runs", "--status", "runing"],
        ["metrics", "r1", "--flow", "x"],
        ["diagram", "nothing"],
        ["resolve", "r1", "happened", "--receipt", "{"],
        ["frobnicate"],
        ["shwo"],
        ["show"],
        ["runs", "--limt", "3"],
        ["runs", "--limit", "many"],
    ],
    ids=" ".join,
)
def test_usage_and_configuration_end_with_2(detent, folder, args):
    (folder / "not-a-store.txt").write_text("just text, and more of it than a header is long" * 20)
    line = sentence(detent(*args), 2)
    MESSAGES.check(f"$ detent {' '.join(args)}", re.sub(r" \(/.*\)$", "", line))  # where the value was made


@pytest.mark.parametrize(
    "command", ["why", "metrics", "resume", "cancel", "fork", "reopen", "export", "purge"]
)
def test_an_unknown_run_is_told_by_every_command(detent, started, command):
    started()
    MESSAGES.check("# a run that is not there", sentence(detent(command, "nosuchrun"), 2))


def test_broken_json_in_a_batch_names_its_line(detent, folder):
    (folder / "b.jsonl").write_text('{"a": 1}\n{"a": \n')
    assert "at line 2, column" in sentence(detent("run", "flow.py", "--batch", "b.jsonl"), 2)


def test_a_broken_settings_file_names_its_line(detent, folder):
    (folder / "detent.yaml").write_text("store: x.db\nbudgt: {steps: 3}\n")
    for command in (["run", "flow.py"], ["runs"], ["flows"]):
        line = sentence(detent(*command), 2)
        assert line.startswith("detent.yaml:2:1: ")
        MESSAGES.check("# an unknown heading", line)


def test_a_run_id_that_is_taken(detent, started):
    detent("run", "flow.py", "--id", "r1")
    said = detent("run", "flow.py", "--id", "r1", "-q")
    MESSAGES.check("# a run id that is taken", sentence(said, 2))


def test_a_store_from_a_newer_version(detent, started, folder):
    started()
    with sqlite3.connect(folder / ".detent/detent.db") as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    for command in (["runs"], ["run", "flow.py", "-q"]):
        line = sentence(detent(*command), 2)
        assert "was written by a newer Detent (schema 999" in line
    assert detent("doctor").code == 2


def test_a_sqlite_file_of_somebody_else(detent, folder):
    with sqlite3.connect(folder / "theirs.db") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    assert "not one of Detent's" in sentence(detent("runs", "--store", "theirs.db"), 2)
    assert "not one of Detent's" in sentence(detent("run", "flow.py", "-q", "--store", "theirs.db"), 2)


def test_a_locked_store(detent, started, folder):
    started()
    db = sqlite3.connect(folder / ".detent/detent.db", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    try:
        said = detent("run", "flow.py", "-q", "--store", "sqlite:.detent/detent.db?timeout=0.2")
        assert "is locked by another process for more than 0.2 seconds" in sentence(said, 2)
    finally:
        db.execute("ROLLBACK")
        db.close()


# Root may write anywhere; without this one right even root is refused like everybody else.
HUMBLE = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []


@pytest.mark.parametrize(
    "command", [["run", "flow.py", "-q"], ["cancel", "r1"], ["run", "flow.py", "-q", "--store", "new.db"]]
)
def test_a_read_only_folder(detent, folder, command):
    detent("run", "flow.py", "--id", "r1", "--set", "amount=500")
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = subprocess.run(
            [*HUMBLE, sys.executable, "-m", "detent", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert "read-only" in line or "cannot be opened" in line


def test_a_missing_integration_ends_with_3(detent, monkeypatch):
    monkeypatch.setitem(sys.modules, "detent.adapters.stores.postgres", None)
    line = sentence(detent("runs", "--store", "postgresql://host/db"), 3)
    assert "pip install 'detent[postgres]'" in line


def test_data_that_does_not_fit_the_flows_model(detent, folder):
    (folder / "typed.py").write_text(
        "from pydantic import BaseModel\n"
        "from detent import Flow, Machine\n"
        "class Form(BaseModel):\n"
        "    amount: int\n"
        "    name: str\n"
        "machine = Machine('typed', start='a', moves={'a': ['b']}, ends=['b'])\n"
        "typed = Flow(machine, {'a': lambda ctx: 'b'}, data=Form)\n"
    )
    line = sentence(detent("run", "typed.py", "--data", '{"amount": "much"}'), 2)
    assert line.startswith("The input does not fit flow 'typed': amount: Input should be a valid integer")
    assert line.endswith("; name: Field required.")


def test_a_password_is_never_shown(detent):
    said = detent("runs", "--store", "postgresql://me:s3cret@127.0.0.1:1/none?connect_timeout=1")
    assert said.code == 2
    assert "s3cret" not in said.out + said.err


def test_a_postgresql_server_that_is_not_there(detent):
    said = detent("runs", "--store", "postgresql://127.0.0.1:1/none?connect_timeout=1")
    assert said.code == 2
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1


def test_the_unexpected_is_one_sentence_and_the_rest_on_demand(detent, folder, monkeypatch):
    (folder / "odd.py").write_text(
        (folder / "flow.py").read_text() + "\nonboarding.problems = lambda: 1 / 0\n"
    )
    line = sentence(detent("check", "odd.py"), 1)
    assert (
        line
        == "Unexpected ZeroDivisionError: division by zero (set DETENT_DEBUG=1 to see where it happened)."
    )
    monkeypatch.setenv("DETENT_DEBUG", "1")
    assert "Traceback" in detent("check", "odd.py").err


def test_nobody_reading_the_output_is_no_drama(started, folder):
    run_id = started(name="long" * 100_000)
    with subprocess.Popen(
        [sys.executable, "-m", "detent", "export", run_id],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as reader:  # fmt: skip
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.read(1)
        reader.stdout.close()
        assert reader.stderr.read() == b""
        assert reader.wait() == 1


def test_ctrl_c_while_looking_ends_with_130(detent, folder):
    (folder / "slow.py").write_text("import os, signal\n\nos.kill(os.getpid(), signal.SIGINT)\n")
    (folder / "detent.yaml").write_text("plugins: [slow.py]\n")
    said = detent("flows")
    assert (said.code, said.out, said.err) == (130, "", "")


def _laughs() -> str:
    """Aliases of aliases: ten to the power of thirty values."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    return "\n".join(lines)


@pytest.mark.parametrize("command", [["workflow", "list"], ["runs"], ["run", "flow.py"]])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (_laughs(), "detent.yaml:4:45: The file holds more than 10000 values, aliases written out."),
        ("x: [" + "1, " * 2_500_000 + "1]", "it may have 250,000 bytes at most."),
        ("concurrency: " + "9" * 5000, "detent.yaml:1:14: "),
    ],
    ids=["aliases", "length", "number"],
)
def test_settings_that_would_hang_every_command_are_refused(detent, command, text, problem):
    with open("detent.yaml", "w") as file:
        file.write(text)
    assert problem in sentence(detent(*command), 2)


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        (
            "p/steps/01-a.md",
            f"---\nname: 01-a\ndescription: x\nversion: 1.0.0\nnext: [DONE]\n{_laughs()}\n---\nDo it.\n",
            ["playbook", "check", "p"],
        ),
        ("w.yaml", f"name: w\nsteps: []\n{_laughs()}\n", ["workflow", "validate", "w.yaml"]),
    ],
    ids=["step", "workflow"],
)
def test_files_of_other_kinds_are_bounded_alike(detent, name, text, command):
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    said = detent(*command)
    assert said.code not in (0, 1), said
    assert "aliases written out" in said.out + said.err


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_refused_budget_names_the_option_and_no_file_of_ours(detent, value):
    line = sentence(detent("run", "flow.py", "--budget-steps", value), 2)
    assert line == f"--budget-steps takes a number above 0, not {value}."
