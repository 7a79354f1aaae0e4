"""`detent store`, and what the program says when the store's files are damaged, deleted or read-only."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.adapters.stores.unprivileged import python

DELETING = '''
"""A flow in whose step somebody cleans up too much."""

import shutil

from detent import Flow, Machine, Outcome, Status

machine = Machine("cleaning", start="sweep", moves={"sweep": ["dust"], "dust": ["done"]},
                  ends={"done": Status.SUCCEEDED})
cleaning = Flow(machine)


@cleaning.step("sweep")
def sweep(ctx):
    """Sweep the folder, and what nobody meant."""
    shutil.rmtree(".detent")
    return Outcome("dust")


@cleaning.step("dust")
def dust(ctx):
    """Dust the shelves of the folder."""
    return Outcome("done")
'''


def db(folder: Path) -> Path:
    return folder / ".detent" / "detent.db"


def test_a_store_deleted_in_the_middle_of_a_run_is_no_success_and_can_be_restored(detent, folder):
    (folder / "cleaning.py").write_text(DELETING)
    said = detent("run", "cleaning.py", "--id", "r1")
    assert said.code == 2, said.out
    assert "succeeded" not in said.out
    assert f"The store {db(folder)} was deleted while it was in use." in said.err
    (rescued,) = db(folder).parent.glob("detent.db.rescued-*")
    assert f"detent store restore {rescued} --store {db(folder)}" in said.err
    assert f"detent resume --all --store {db(folder)}" in said.err
    assert detent("store", "restore", str(rescued)).code == 0
    assert detent("show", "r1", "--json").json["state"] == "dust"
    assert detent("store", "check").code == 0


def lost(detent, folder: Path) -> Path:
    """Have a run lose its store; gives the file that was rescued."""
    (folder / "cleaning.py").write_text(DELETING)
    detent("run", "cleaning.py", "--id", "r1")
    (rescued,) = db(folder).parent.glob("detent.db.rescued-*")
    return rescued


def command_in(text: str, words: str) -> list[str]:
    """The words of a command that a message shows, without the program's name."""
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith(words)]
    return shlex.split(line)[1:]


def test_no_command_makes_a_new_store_beside_a_rescued_one(detent, folder):
    rescued = lost(detent, folder)
    for args in (
        ("run", "cleaning.py", "--id", "r1"), ("run", "flow.py", "-q"), ("runs",), ("show", "r1"),
        ("store", "check"), ("resume", "--all"), ("serve",),
    ):  # fmt: skip
        said = detent(*args)
        assert (said.code, said.out) == (2, ""), args
        assert f"The store {db(folder)} is gone, and what it held was saved to {rescued}." in said.err, args
        assert f"detent store restore {rescued} --store {db(folder)}" in said.err
    assert not db(folder).exists()


def test_a_lost_store_needs_attention(detent, folder):
    rescued = lost(detent, folder)
    said = detent("doctor", "--json")
    assert (said.code, said.json["healthy"], said.json["store"]["reachable"]) == (1, False, False)
    (need,) = said.json["needs"]
    assert "is gone, and what it held was saved to" in need["what"]
    assert need["command"] == f"detent store restore {rescued}"
    shown = detent("doctor")
    assert f"    detent store restore {rescued}" in shown.lines
    assert "nothing is wrong" not in shown.out
    assert "none yet" not in shown.out


def test_a_lost_store_is_restored_with_the_command_that_is_shown_and_nothing_is_left_over(detent, folder):
    rescued = lost(detent, folder)
    assert detent(*command_in(detent("runs").err, "detent store restore")).code == 0
    assert not rescued.exists()
    assert [row["id"] for row in detent("runs", "--json").json["runs"]] == ["r1"]
    (folder / "cleaning.py").write_text(DELETING.replace('shutil.rmtree(".detent")', "pass"))
    detent("resume", "--all")
    assert detent("doctor").code == 0


def test_a_new_store_is_begun_where_what_is_left_of_the_old_one_was_moved_away(detent, folder):
    lost(detent, folder)
    said = detent("runs")
    (move,) = [line.strip() for line in said.err.splitlines() if line.strip().startswith("mkdir")]
    subprocess.run(move, shell=True, check=True)
    assert detent("run", "flow.py").code == 0
    assert detent("doctor").code == 0


@pytest.mark.parametrize("left", ["detent.db-wal", "detent.db-shm"])
def test_a_log_without_its_store_is_no_place_for_a_new_one(detent, folder, started, left):
    started()
    db(folder).unlink()
    db(folder).with_name(left).write_bytes(b"what was committed last")
    for args in (("run", "flow.py"), ("runs",)):
        said = detent(*args)
        assert (said.code, said.out) == (2, "")
        assert f"The store {db(folder)} is gone, and {db(folder).with_name(left)} is left of it." in said.err
        assert f"detent store restore BACKUP --store {db(folder)}" in said.err
    assert "is left of it" in detent("doctor", "--json").json["needs"][0]["what"]
    assert detent("doctor").code == 1
    assert db(folder).with_name(left).read_bytes() == b"what was committed last"


def test_a_file_rescued_beside_a_store_that_is_there_needs_attention(detent, folder, started):
    """Somebody began anew while a process still held the store that was deleted."""
    started()
    shutil.copy(db(folder), db(folder).with_name("detent.db.rescued-20261116-095504-4711"))
    said = detent("doctor", "--json")
    assert said.code == 1
    assert (
        "detent.db.rescued-20261116-095504-4711 holds what a process saved" in said.json["needs"][0]["what"]
    )
    assert "detent runs --store " in said.json["needs"][0]["what"]


def test_another_programs_file_is_not_called_damaged(detent, folder):
    connection = sqlite3.connect(folder / "browser.db")
    connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    said = detent("store", "check", "--store", "browser.db")
    assert (said.code, said.out) == (2, "")
    assert said.err == "browser.db is a SQLite file, but not one of Detent's.\n"
    assert "backup" not in detent("doctor", "--deep", "--store", "browser.db").out


def test_a_store_that_is_whole_is_said_to_be(detent, folder, started):
    started()
    said = detent("store", "check")
    assert (said.code, said.lines) == (0, [".detent/detent.db is whole."])
    assert detent("store", "check", "--json").json == {
        "place": ".detent/detent.db", "whole": True, "problems": [],
    }  # fmt: skip


def test_without_a_store_there_is_nothing_to_check(detent, folder):
    said = detent("store", "check")
    assert said.code == 2
    assert "There is no store at" in said.err
    assert not (folder / ".detent").exists()


def test_damaged_pages_are_found(detent, folder, started):
    for _ in range(20):
        started()
    raw = bytearray(db(folder).read_bytes())
    for page in range(4, len(raw) // 4096):
        raw[page * 4096 + 8 : page * 4096 + 200] = b"\xff" * 192
    db(folder).write_bytes(raw)
    for args in (("store", "check"), ("doctor", "--deep")):
        said = detent(*args)
        assert said.code in (1, 2)
        assert "amaged" in said.out


def edited(folder: Path, statement: str) -> None:
    with sqlite3.connect(db(folder)) as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM entries WHERE key = (SELECT max(key) FROM entries)", "its journal ends at entry"),
        ("DELETE FROM entries WHERE key = (SELECT min(key) + 1 FROM entries)", "its journal has no entry 2"),
        ("UPDATE entries SET body = '{'", "its journal cannot be read at entry 1"),
        ("UPDATE runs SET status = 'failed'", "its journal says status succeeded, its row says failed"),
        ("UPDATE entries SET key = key + (99 << 24)", "journal entries belong to no run"),
        ("INSERT INTO blobs VALUES ('ab', x'00')", "is not the one that was kept"),
        ("INSERT INTO blob_refs VALUES (1, 'ab')", "1 values kept beside journals are missing"),
    ],
)
def test_a_journal_that_does_not_add_up_is_found(detent, folder, started, statement, what):
    started()
    edited(folder, statement)
    said = detent("doctor", "--deep")
    assert said.code == 1
    assert what in said.out


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE runs SET status = 'rubbish'", "its row has a status that does not exist"),
        ("UPDATE runs SET waits = '{\"a\":'", "its row does not say what it waits for"),
        ("UPDATE runs SET waits = '[1]'", "its row does not say what it waits for"),
        ("UPDATE runs SET updated_at = 'rubbish'", "its row has no number as updated_at"),
    ],
)
def test_a_damaged_row_is_a_finding_that_names_its_run_and_hides_no_other(detent, folder, statement, what):
    detent("run", "flow.py", "--id", "whole")
    detent("run", "flow.py", "--id", "hurt", "--set", "amount=5000")
    edited(folder, f"{statement} WHERE id = 'hurt'")
    checked = detent("store", "check")
    assert (checked.code, checked.lines[0]) == (1, f"Run hurt: {what}.")
    listed = detent("runs", "--json")
    assert (listed.code, [row["id"] for row in listed.json["runs"]]) == (0, ["whole"])
    assert listed.json["damaged"] == ["hurt"]
    assert f"Run hurt is damaged in the store: {what}." in listed.err
    shown = detent("show", "hurt")
    assert (shown.code, shown.err.partition(": ")[0]) == (1, "Run hurt is damaged in the store")
    assert detent("show", "whole").code == 0
    for args in (("doctor",), ("doctor", "--deep")):
        said = detent(*args)
        assert said.code in (1, 2)
        assert "Unexpected" not in said.out + said.err
    assert f"Run hurt: {what}." in said.out


@pytest.mark.parametrize("table", ["entries SET body", "marks SET value", "definitions SET body"])
def test_text_that_is_no_json_is_a_sentence_in_every_command(detent, folder, table):
    detent("run", "flow.py", "--id", "r1", "--set", "amount=5000")
    edited(folder, f"UPDATE {table} = '{{\"a\":'")
    for args in (
        ("doctor",),
        ("doctor", "--deep"),
        ("store", "check"),
        ("runs",),
        ("show", "r1"),
        ("why", "r1"),
    ):
        said = detent(*args)
        assert "Unexpected" not in said.out + said.err, args


def test_a_store_that_is_empty_or_leads_nowhere_or_lacks_a_table_is_reported(detent, folder, started):
    started()
    edited(folder, "DROP TABLE entries")
    reported = {"it lacks the table entries": None, "is empty (0 bytes)": "", "leads to no file": "gone.db"}
    for what, content in reported.items():
        if content is not None:
            for file in db(folder).parent.glob("detent.db*"):
                file.unlink()
            db(folder).symlink_to(content) if content else db(folder).touch()
        for args in (("doctor",), ("doctor", "--deep"), ("store", "check"), ("runs",)):
            said = detent(*args)
            assert said.code in (1, 2), args
            assert what in said.out + said.err, args


def test_a_store_that_is_a_link_to_itself_is_reported(detent, folder, started):
    started()
    for file in db(folder).parent.glob("detent.db*"):
        file.unlink()
    db(folder).symlink_to(db(folder).name)
    said = detent("doctor")
    assert (said.code, "leads to no file" in said.out) == (2, True)


def test_a_log_that_was_cut_short_is_found_before_it_is_dropped(detent, folder, spawn):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    worker.kill()
    log = db(folder).with_name("detent.db-wal")
    assert detent("store", "check", "--store", str(copy_of(folder, "whole"))).code == 0
    raw = log.read_bytes()
    log.write_bytes(raw[: len(raw) // 2])
    said = detent("store", "check")
    assert said.code == 1
    assert "the last commits are lost" in said.out


def copy_of(folder: Path, name: str) -> Path:
    shutil.copytree(folder / ".detent", folder / name)
    return folder / name / "detent.db"


def test_a_damaged_log_without_its_index_is_found_too(detent, folder, spawn):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    worker.kill()
    log = db(folder).with_name("detent.db-wal")
    db(folder).with_name("detent.db-shm").unlink()
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    log.write_bytes(raw)
    said = detent("store", "check")
    assert (said.code, "is damaged after" in said.out) == (1, True), said.out


def test_a_backup_made_while_a_run_is_under_way_is_whole_and_brings_it_back(detent, folder, spawn):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    assert detent("store", "backup", "copy.db").code == 0
    (folder / "wait").unlink()
    assert worker.result().code == 0
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600
    refused = detent("store", "backup", "copy.db")
    assert (refused.code, "already exists" in refused.err) == (2, True)
    assert detent("store", "check", "--store", "copy.db").code == 0

    refused = detent("store", "restore", "copy.db")
    assert (refused.code, "--force" in refused.err) == (2, True)
    said = detent("store", "restore", "copy.db", "--force")
    assert said.code == 0
    aside = said.lines[1].removeprefix("The store that was there is kept as ").removesuffix(".")
    assert detent("show", "r1", "--json").json["status"] == "running"
    assert detent("show", "r1", "--json", "--store", aside).json["status"] == "succeeded"


@pytest.mark.parametrize("content", [b"no store at all", b""])
def test_what_is_no_backup_is_not_restored(detent, folder, started, content):
    started()
    (folder / "other").write_bytes(content)
    before = db(folder).read_bytes()
    assert detent("store", "restore", "other", "--force").code == 2
    assert detent("store", "restore", "gone", "--force").code == 2
    assert db(folder).read_bytes() == before
    assert sorted(one.name for one in db(folder).parent.iterdir()) == [".gitignore", "detent.db"]


def test_a_store_of_a_server_is_copied_with_the_tools_of_the_server(detent, folder):
    for args in (("backup", "x"), ("restore", "x")):
        said = detent("store", *args, "--store", "postgresql://localhost/none")
        assert said.code == 2
        assert "pg_dump" in said.err


def test_a_store_that_cannot_be_written_is_read_by_every_command_that_only_reads(detent, folder, started):
    run = started()
    place = folder / ".detent"
    for one in place.iterdir():
        one.chmod(0o400)
    place.chmod(0o500)
    try:
        for args in (
            ("runs",), ("show", run), ("why", run), ("export", run), ("metrics", run), ("diagram", run),
            ("doctor",), ("store", "check"), ("store", "backup", "copy.db"),
        ):  # fmt: skip
            ran = python("-m", "detent", *args, cwd=folder)
            assert ran.returncode == 0, (args, ran.stdout, ran.stderr)
        for args in (("run", "flow.py"), ("purge", run)):
            ran = python("-m", "detent", *args, cwd=folder)
            assert ran.returncode == 2, (args, ran.stdout)
            assert "detent.db is read-only: it can be looked at, not changed" in ran.stderr
    finally:
        place.chmod(0o755)
