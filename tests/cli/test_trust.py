"""A project is trusted by a person who has looked, until it changes or is revoked."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys

import pytest

from tests.cli.untrusted import HELPERS, WORKFLOW, foreign, record, stranger

__all__ = ["foreign", "stranger"]


def test_trusting_shows_files_code_programs_and_where_keys_go(stranger, detent):
    said = detent("trust", "--yes")
    assert said.code == 0
    for line in (
        "detent.yaml", "shop_plugin.py", "helpers.py", ".detent/workflows/greet.yaml",
        "playbooks/desk/desk_tools.py", "sh -c touch MARKER  (mcp.docs)",
        "AWS_SECRET_ACCESS_KEY → 127.0.0.2  (models.theirs, not allowed yet)",
    ):  # fmt: skip
        assert f"    {line}\n" in said.out
    assert not (stranger / "MARKER").exists()
    assert "AWS_SECRET_ACCESS_KEY is not sent to 127.0.0.2" in said.err


def test_a_trusted_project_runs_until_one_of_its_files_changes(stranger, detent):
    detent("trust", "--yes")
    assert detent("workflow", "run", "greet").code == 0
    (stranger / "MARKER").unlink()
    (stranger / "hello.txt").write_text("no file that configures anything")
    assert detent("workflow", "run", "greet").code == 0
    (stranger / "helpers.py").write_text(f"{HELPERS}\n# one more line\n")
    refused = detent("workflow", "run", "greet")
    assert refused.code == 2
    assert "has changed since it was trusted: helpers.py." in refused.err
    assert "detent trust" in refused.err


@pytest.mark.parametrize(
    "file", [".detent/workflows/new.yaml", "playbooks/desk/steps/02-more.md", "config.yaml", "detent.yaml"]
)
def test_a_new_or_changed_file_that_configures_makes_the_project_untrusted(stranger, detent, file):
    detent("trust", "--yes")
    place = stranger / file
    with place.open("a") as out:
        out.write("\n")
    refused = detent("workflow", "run", "greet").code == 2
    assert refused == (file != "config.yaml")  # which is not read where there is a detent.yaml


def test_the_record_is_private_and_lies_outside_the_project(stranger, detent):
    detent("trust", "--yes")
    place = record(stranger)
    assert not place.is_relative_to(stranger)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


def test_trust_is_revoked(stranger, detent):
    detent("trust", "--yes")
    assert detent("trust", "--revoke").code == 0
    assert detent("workflow", "run", "greet").code == 2


def test_a_folder_of_ones_own_is_trusted_whatever_is_in_it(stranger, detent):
    assert detent("trust", "--always", "--yes").code == 0
    (stranger / "helpers.py").write_text("")
    assert detent("workflow", "run", "greet").code == 0


def test_without_a_person_to_ask_nothing_is_trusted(stranger, detent):
    said = detent("trust")
    assert (said.code, "confirm with --yes" in said.err) == (2, True)
    assert detent("workflow", "run", "greet").code == 2


def test_a_project_made_here_is_trusted_as_made(folder, detent, monkeypatch):
    monkeypatch.delenv("DETENT_TRUST")
    monkeypatch.setenv("DETENT_CONFIG_HOME", str(folder.parent / f"{folder.name}-config"))
    assert detent("workflow", "new", "hello").code == 0
    assert detent("workflow", "run", "hello").code == 0
    assert detent("warranty", "init", "desk").code == 0
    monkeypatch.chdir(folder / "desk")
    assert detent("run", "warranty", "--once").code == 0


def test_a_command_that_writes_into_a_strangers_project_does_not_make_it_trusted(stranger, detent):
    assert detent("workflow", "new", "hello").code == 0
    assert detent("workflow", "run", "hello").code == 2


def test_the_doctor_says_that_others_could_read_the_store_until_now(folder, detent):
    detent("run", "flow.py")
    store = folder / ".detent/detent.db"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    store.chmod(0o644)
    assert "others could read it; from now on it is yours alone" in detent("doctor").out
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert "others could read it" not in detent("doctor").out


def test_settings_that_are_named_are_trusted_by_the_command_that_the_message_names(
    stranger, detent, monkeypatch
):
    elsewhere = stranger.parent / f"{stranger.name}-elsewhere"
    (elsewhere / ".detent/workflows").mkdir(parents=True)
    (elsewhere / ".detent/workflows/greet.yaml").write_text(WORKFLOW)
    (stranger / "detent.yaml").rename(stranger / "prod.yaml")
    monkeypatch.chdir(elsewhere)
    config = str(stranger / "prod.yaml")
    refused = detent("workflow", "run", "greet", "--config", config)
    assert f"To look and trust: detent trust --config {config}" in refused.err
    assert detent("trust", "--config", config, "--yes").code == 0
    refused = detent("workflow", "run", "greet", "--config", config)
    assert (refused.code, f"The project in {elsewhere} is not trusted" in refused.err) == (2, True)
    assert detent("trust", "--yes").code == 0
    assert detent("workflow", "run", "greet", "--config", config).code == 0


def test_trusting_shows_where_the_project_writes(stranger, detent):
    with (stranger / "detent.yaml").open("a") as out:
        out.write("store: postgresql://ada@db.example/runs\nlogging: {file: ../elsewhere.log}\n")
    said = detent("trust", "--show")
    assert "  where it writes:\n" in said.out
    assert "    postgresql://ada@db.example/runs  (store)\n" in said.out
    assert "    ../elsewhere.log  (logging.file)\n" in said.out
    assert detent("trust", "--json").json["writes"] == {
        "store": "postgresql://ada@db.example/runs",
        "logging.file": "../elsewhere.log",
    }


def test_always_asks_about_whatever_will_be_in_the_folder(stranger):
    import pty
    import subprocess
    import sys

    def asked(*options: str) -> str:
        person, terminal = pty.openpty()
        command = [sys.executable, "-m", "detent", "trust", *options]
        os.write(person, b"n\n")
        done = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=False)
        os.close(person)
        os.close(terminal)
        return done.stdout + done.stderr

    assert f"Trust {stranger} and everything below it, with all present and future content?" in asked(
        "--always"
    )
    assert "Trust this project as it is now?" in asked()


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_a_file_that_changes_while_the_question_is_open_is_not_trusted(stranger, detent):
    ours, theirs = os.openpty()
    asking = subprocess.Popen(
        [sys.executable, "-m", "detent", "trust"], cwd=stranger, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 4096)
    (stranger / "helpers.py").write_text("# changed\n")
    os.write(ours, b"y\nn\n")
    with contextlib.suppress(OSError):  # the terminal's end
        while piece := os.read(ours, 4096):
            said += piece
    assert asking.wait() == 2
    os.close(ours)
    assert b"helpers.py changed while you looked" in said
    assert detent("trust", "--show", "--json").json["state"] == "untrusted"
