"""`detent run`: one run, many runs, and what each comes to."""

import io
import json
import re
import sys


def test_a_line_for_every_step_and_how_it_ended(detent):
    said = detent("run", "flow.py", "--id", "r1", "--set", "flaky=true")
    assert said.code == 0
    assert said.err == ""
    assert said.lines[0] == "onboarding r1"
    assert [line.split()[:3] for line in said.lines[1:5]] == [
        ["collect", "→", "check"],
        ["check", "✗", "0"],
        ["check", "→", "welcome"],
        ["welcome", "→", "done"],
    ]
    assert said.lines[1].endswith("form read")
    assert said.lines[-1].startswith("succeeded in done · 3 steps · ")
    assert said.lines[-1].endswith("15 tokens · $0.0100")


def test_lines_are_aligned(detent):
    said = detent("run", "flow.py")
    arrows = {line.index("→") for line in said.lines if "→" in line}
    assert len(arrows) == 1


def test_a_waiting_run_is_no_failure_and_names_the_command_that_releases_it(detent):
    said = detent("run", "flow.py", "--id", "r1", "--set", "amount=500")
    assert said.code == 0
    assert said.lines[-2].startswith("waiting in approve")
    assert said.lines[-1] == "  detent release r1 yes --hold approval@4   (or: no)"


def test_the_command_shown_finds_the_same_store(detent, folder):
    said = detent("run", "flow.py", "--id", "r1", "--set", "amount=500", "--store", "my runs.db")
    assert said.lines[-1] == "  detent release r1 yes --hold approval@4 --store 'my runs.db'   (or: no)"
    assert (folder / "my runs.db").is_file()


def test_a_failed_run_ends_with_1_and_says_why(detent):
    said = detent("run", "flow.py", "--id", "r1", "--set", "broken=true")
    assert said.code == 1
    assert "failed in check" in said.out
    assert "ValueError: the form makes no sense" in said.out
    assert "  detent why r1" in said.lines
    assert "Traceback" not in said.out + said.err


def test_json_is_all_that_is_printed(detent):
    said = detent("run", "flow.py", "--data", '{"name": "Grace"}', "--tag", "a", "--tag", "b", "--json")
    assert said.json["status"] == "succeeded"
    assert said.json["data"]["name"] == "Grace"
    assert said.json["tags"] == ["a", "b"]
    assert said.json["created_at"].endswith("+00:00")


def test_quiet_prints_the_id_alone(detent):
    assert detent("run", "flow.py", "--id", "r1", "-q").out == "r1\n"


def test_data_comes_from_text_file_or_standard_input(detent, folder, monkeypatch):
    (folder / "in.json").write_text('{"name": "from file"}')
    assert detent("run", "flow.py", "--data", "@in.json", "--json").json["data"]["name"] == "from file"
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"name": "from stdin"}'))
    assert detent("run", "flow.py", "--data", "-", "--json").json["data"]["name"] == "from stdin"


def test_set_wins_over_data_and_reads_json(detent):
    said = detent(
        "run", "flow.py", "--data", '{"name": "a"}', "--set", "name=b", "--set", 'more={"x": [1]}', "--json"
    )
    assert said.json["data"]["name"] == "b"
    assert said.json["data"]["more"] == {"x": [1]}


def test_a_budget_ends_the_run_where_it_can_be_reopened(detent):
    said = detent("run", "flow.py", "--id", "r1", "--budget-steps", "1")
    assert said.code == 1
    assert said.lines[-1] == "  detent reopen r1 --budget-steps MORE"
    said = detent("reopen", "r1", "--budget-steps", "10")
    assert said.code == 0
    assert "succeeded in done" in said.out


def test_the_projects_budget_holds_unless_the_command_line_says_more(detent, folder):
    (folder / "detent.yaml").write_text("budget: {steps: 1}\n")
    assert detent("run", "flow.py", "--json").json["status"] == "budget_exhausted"
    assert detent("run", "flow.py", "--budget-steps", "9", "--json").json["status"] == "succeeded"


def test_detach_leaves_the_run_for_others(detent):
    said = detent("run", "flow.py", "--id", "r1", "--detach")
    assert said.code == 0
    assert said.lines[0] == "r1"
    assert detent("show", "r1", "--json").json["status"] == "running"
    assert detent("resume", "r1").code == 0
    assert detent("show", "r1", "--json").json["status"] == "succeeded"


def test_many_runs_alike(detent):
    said = detent("run", "flow.py", "--many", "20", "--concurrency", "5", "--id", "batch")
    assert said.code == 0
    assert said.lines[-1].startswith("20 of 20 · 20 succeeded")
    listed = detent("runs", "--json", "--limit", "100").json["runs"]
    assert sorted(row["id"] for row in listed) == [f"batch-{number:02d}" for number in range(1, 21)]


def test_a_batch_file_of_a_list_or_of_lines(detent, folder):
    items = [{"name": "a"}, {"name": "b", "amount": 500}, {"name": "c", "broken": True}]
    (folder / "list.json").write_text(json.dumps(items))
    (folder / "lines.jsonl").write_text("\n".join(json.dumps(item) for item in items) + "\n\n")
    for file in ("list.json", "lines.jsonl"):
        said = detent("run", "flow.py", "--batch", file)
        assert said.code == 1
        summary = next(line for line in said.lines if " of " in line)
        assert "1 waiting, 1 succeeded, 1 failed" in summary
        assert any("the form makes no sense" in line for line in said.lines)
    ended = detent("run", "flow.py", "--batch", "list.json", "--json").json
    assert sorted(run["status"] for run in ended) == ["failed", "succeeded", "waiting"]


def test_data_that_is_a_list_starts_one_run_per_item(detent):
    said = detent("run", "flow.py", "--data", '[{"name": "a"}, {"name": "b"}]', "--json")
    assert sorted(run["data"]["name"] for run in said.json) == ["a", "b"]


def test_the_settings_of_the_project_are_used(detent, folder):
    (folder / "detent.yaml").write_text("store: kept.db\nplugins: [flow.py]\n")
    assert detent("run", "onboarding").code == 0
    assert (folder / "kept.db").is_file()
    assert not (folder / ".detent").exists()


def test_logs_are_asked_for(detent, folder):
    assert detent("run", "flow.py").err == ""
    said = detent("run", "flow.py", "-v")
    assert "step.completed" in said.err
    (folder / "detent.yaml").write_text("logging: {format: json, file: log.jsonl}\n")
    assert detent("run", "flow.py").err == ""
    events = [json.loads(line)["event"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert events[-1] == "run.ended"


SHOP = '''
"""Pays at a bank that refuses, or does not answer."""

import time

from detent import Effect, Flow, Machine, Outcome, RetryPolicy, Status, ToolError, tool


@tool("bank.pay")
def pay(amount: int) -> dict:
    """Pay an amount."""
    raise ToolError("refused", "no money", transient=False)


@tool("bank.slow", timeout=0.05, idempotent=True, retry=RetryPolicy(2, 0.01, 0.01))
async def slow(amount: int) -> dict:
    """Pay an amount, at a bank that takes its time."""
    import asyncio

    await asyncio.sleep(60)
    return {}


@tool("bank.mute", retry=RetryPolicy(2, 0.01, 0.01))
def mute(amount: int) -> dict:
    """Pay an amount, at a bank that does not say what is wrong."""
    raise ToolError("offline", transient=True)


shop = Flow(
    Machine("shop", start="work", moves={"work": ["done", "failed"]},
            ends={"done": Status.SUCCEEDED, "failed": Status.FAILED}),
    tools=[pay, slow, mute],
)


@shop.step("work")
def work(ctx):
    """Pay at the bank that is named."""
    return Outcome("done", effects=[Effect(ctx.data.tool, {"amount": 3})])
'''


def test_what_went_wrong_is_printed_once_and_a_state_is_not_repeated(detent, folder):
    (folder / "shop.py").write_text(SHOP)
    said = detent("run", "shop.py", "--set", "tool=bank.pay")
    assert said.code == 1
    assert said.out.count("'bank.pay' failed for good (refused: no money)") == 1
    assert "failed in failed" not in said.out
    assert any(line.startswith("failed · 1 step") for line in said.lines)


def test_a_tool_that_does_not_answer_in_time_is_said_to_have_not(detent, folder):
    (folder / "shop.py").write_text(SHOP)
    said = detent("run", "shop.py", "--id", "r1", "--set", "tool=bank.slow")
    assert re.search(r"bank\.slow: no answer within 0\.05 s; again in \d+ ms", said.out)
    assert "  error: TimeoutError: no answer within 0.05 s" in detent("show", "r1").lines


def test_a_failure_without_a_text_shows_its_code(detent, folder):
    (folder / "shop.py").write_text(SHOP)
    said = detent("run", "shop.py", "--set", "tool=bank.mute")
    assert re.search(r"bank\.mute: offline; again in \d+ ms", said.out)


def test_a_replayed_run_gets_the_answers_people_gave(detent, folder, token):
    detent("run", "flow.py", "--data", '{"amount": 500}', "--id", "r1", "--record", "tape.jsonl")
    detent("release", "r1", "yes", "--hold", token("r1"))
    assert detent("show", "r1", "--json").json["status"] == "succeeded"
    played = detent("replay", "r1", "tape.jsonl")
    # The part that was resumed was not recorded: the replay stops where the recording does, and says so.
    assert played.code == 1
    assert "desk.send" in played.err
    detent("run", "flow.py", "--data", '{"amount": 50}', "--id", "r2", "--record", "second.jsonl")
    assert detent("replay", "r2", "second.jsonl").code == 0
    assert (folder / "sent.txt").read_text().splitlines() == ["Ada: hello"] * 2
