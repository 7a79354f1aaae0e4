"""Processes that are stopped, killed, or told to drain, and what is left of their runs."""

import signal

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_finishes_the_step_under_way(detent, spawn, folder, number):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    worker.signal(number)
    worker.until("Stopping after the steps under way")
    (folder / "wait").unlink()
    said = worker.result()
    assert said.code == 130
    assert "collect  → check" in said.out
    assert said.err.splitlines()[-1] == "Stopped. The run is kept and can go on: detent resume r1"
    assert detent("show", "r1", "--json").json["state"] == "check"
    assert "succeeded in done" in detent("resume", "r1").out


def test_a_second_signal_stops_at_once(detent, spawn, folder):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    worker.signal(signal.SIGINT)
    worker.until("Stopping after the steps under way")
    worker.signal(signal.SIGINT)
    said = worker.result()
    assert said.code == 130
    assert said.err.splitlines()[-1] == "Stopped at once. Go on with: detent resume r1"
    assert detent("show", "r1", "--json").json["status"] == "running"


def test_a_wait_for_the_next_attempt_is_not_sat_out(detent, spawn, folder):
    text = (folder / "flow.py").read_text().replace("RetryPolicy(2, 0.01, 0.01)", "RetryPolicy(3, 20, 20)")
    (folder / "flow.py").write_text(text)
    worker = spawn("run", "flow.py", "--id", "r1", "--set", "flaky=true")
    worker.until("again in 20")
    worker.signal(signal.SIGINT)
    said = worker.result()
    assert said.code == 130
    assert detent("show", "r1", "--json").json["status"] == "running"


def test_a_killed_batch_is_resumed_to_the_same_end(detent, spawn, folder):
    sent = folder / "sent.txt"
    people = [f"p{number}" for number in range(12)]
    (folder / "people.jsonl").write_text("\n".join(f'{{"name": "{name}", "slow": 0.2}}' for name in people))
    worker = spawn("run", "flow.py", "--batch", "people.jsonl", "--concurrency", "4")
    worker.until_true(sent.exists, "never sent anything")
    worker.kill()
    report = detent("doctor", "--json").json["store"]
    assert report["workers_dead"]
    assert report["loose_runs"]
    detent("resume", "--all")
    for row in detent("runs", "--status", "waiting", "--json").json["runs"]:
        # Killed while sending: only a person can know, and looks it up.
        shown = detent("show", row["id"], "--json").json
        name, token = shown["data"]["name"], shown["holds"][0]["token"]
        happened = f"{name}: hello" in sent.read_text().splitlines()
        assert detent("resolve", row["id"], "happened" if happened else "again", "--hold", token).code == 0
    listed = detent("runs", "--json").json["runs"]
    assert {row["status"] for row in listed} == {"succeeded"}
    lines = sent.read_text().splitlines()
    assert len(set(lines)) == len(lines) == len(listed)


def test_ctrl_c_on_a_batch_leaves_the_rest_to_be_resumed(detent, spawn, folder):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--many", "8", "--id", "b", "--concurrency", "2")
    worker.until_in_step()
    worker.signal(signal.SIGINT)
    worker.until("Stopping after the steps under way")
    (folder / "wait").unlink()
    said = worker.result()
    assert said.code == 130
    assert "can go on: detent resume --all" in said.err
    assert detent("resume", "--all").code == 0
    assert {row["status"] for row in detent("runs", "--json").json["runs"]} == {"succeeded"}


def test_serve_drives_what_others_start_and_drains_on_sigterm(detent, spawn):
    detent("run", "flow.py", "--id", "r1", "--detach")
    server = spawn("serve", "--poll", "0.1")
    server.until("Serving .detent/detent.db")
    detent("run", "flow.py", "--id", "r2", "--detach")

    def all_ended() -> bool:
        return {row["status"] for row in detent("runs", "--json").json["runs"]} == {"succeeded"}

    server.until_true(all_ended, "left runs open")
    server.signal(signal.SIGTERM)
    said = server.result()
    assert said.code == 0
    assert said.lines[-1] == "Drained."
    assert "run.ended" in said.err
    assert detent("doctor", "--json").json["store"]["workers_dead"] == []


def test_serve_stopped_by_ctrl_c_was_interrupted(spawn):
    server = spawn("serve", "--plugin", "flow.py")
    server.until("Flows: onboarding")
    server.signal(signal.SIGINT)
    assert server.result().code == 130


def test_a_run_under_way_elsewhere_is_cancelled(detent, spawn, folder):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    assert detent("cancel", "r1").code == 0
    said = worker.result()
    assert said.code == 1
    assert "cancelled" in said.out


def test_a_run_driven_elsewhere_is_not_resumed(detent, spawn, folder):
    (folder / "wait").touch()
    worker = spawn("run", "flow.py", "--id", "r1")
    worker.until_in_step()
    said = detent("resume", "r1")
    assert said.code == 1
    assert "is being driven by worker" in said.err
    assert detent("resume", "--all").out == "No run was interrupted.\n"
