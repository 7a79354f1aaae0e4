"""Commands that look and change nothing."""

import json

from detent.kernel.entries import from_plain
from detent.kernel.run import Run


def test_flows_lists_what_can_be_run_here(detent, folder):
    assert "No flows are known here" in detent("flows").out
    (folder / "detent.yaml").write_text("plugins: [flow.py]\n")
    said = detent("flows")
    assert said.lines[1].split() == ["onboarding", "1", "6", "flow.py", "Takes", "somebody", "on", "board."]
    (listed,) = detent("flows", "--json").json
    assert listed["states"] == ["collect", "check", "approve", "welcome", "done", "rejected"]


def test_runs_are_listed_newest_first_and_by_page(detent, started):
    ids = [started(name=str(number)) for number in range(5)]
    first = detent("runs", "--limit", "2", "--json").json
    assert [row["id"] for row in first["runs"]] == [ids[4], ids[3]]
    second = detent("runs", "--limit", "2", "--page", str(first["next"]), "--json").json
    assert [row["id"] for row in second["runs"]] == [ids[2], ids[1]]
    said = detent("runs", "--limit", "2")
    assert said.lines[0].split() == ["RUN", "FLOW", "STATUS", "STATE", "STEPS", "STARTED", "WHY"]
    assert said.err == f"More: detent runs --limit 2 --page {first['next']}\n"


def test_the_command_for_more_runs_lists_the_same_ones(detent, started):
    for number in range(4):
        started(name=str(number))
    started(amount=500)
    said = detent(
        "runs", "--flow", "onboarding", "--status", "succeeded", "--since", "1d", "--roots", "--limit", "3"
    )
    shown = said.err.strip()
    assert shown.startswith(
        "More: detent runs --flow onboarding --since 1d --status succeeded --limit 3 --roots --page "
    )
    more = detent(*shown.removeprefix("More: detent ").split(), "--json").json
    assert [row["status"] for row in more["runs"]] == ["succeeded"]
    assert more["next"] is None


def test_runs_are_filtered(detent, started):
    done, waiting = started(), started(amount=500)
    detent("run", "flow.py", "--tag", "vip", "--id", "tagged")

    def listed(*args: str) -> set[str]:
        return {row["id"] for row in detent("runs", "--json", *args).json["runs"]}

    assert listed("--status", "waiting") == {waiting}
    assert listed("--status", "waiting,succeeded") == {done, waiting, "tagged"}
    assert listed("--tag", "vip") == {"tagged"}
    assert listed("--flow", "other") == set()
    assert listed("--since", "1h", "--roots") == {done, waiting, "tagged"}
    assert listed("--until", "1h") == set()
    assert detent("runs", "--flow", "other").out == "No runs.\n"


def test_show_says_what_it_waits_for_and_how_to_answer(detent, started):
    run_id = started(amount=500)
    said = detent("show", run_id)
    assert said.code == 0
    assert "waits for person: approval" in said.lines
    assert "  Approve 500 for Ada?" in said.lines
    assert f"  detent release {run_id} yes --hold approval@4   (or: no)" in said.lines
    assert "  amount: 500" in said.lines
    assert any("collect → check" in line for line in said.lines)
    plain = detent("show", run_id, "--json").json
    assert plain["holds"][0]["choices"] == ["yes", "no"]
    assert plain["timeline"][0]["kind"] == "started"


def test_an_effect_in_doubt_is_shown_with_the_command_that_settles_it(detent, started):
    run_id = started(text="boom")
    said = detent("show", run_id)
    assert any("It is not known whether 'desk.send' happened" in line for line in said.lines)
    token = detent("show", run_id, "--json").json["holds"][0]["token"]
    command = f"  detent resolve {run_id} happened --hold {token}   "
    assert f"{command}(or: again to perform it, skip to go on without it)" in said.lines
    assert [line["state"] for line in detent("show", run_id, "--json").json["effects"]] == ["begun"]


def test_text_from_outside_cannot_command_the_terminal(detent, started):
    run_id = started(name="\x1b[2Jgone\nforged line", amount=500)
    for said in (detent("show", run_id), detent("runs"), detent("why", run_id)):
        assert "\x1b" not in said.out
        assert "forged line" not in said.lines


def test_a_beginning_of_an_id_is_enough_while_it_is_unique(detent):
    for name in ("abc1", "abd2"):
        detent("run", "flow.py", "--id", name)
    assert detent("show", "abc").code == 0
    said = detent("show", "ab")
    assert (said.code, said.err) == (2, "'ab' is the beginning of several runs: abc1, abd2.\n")


def test_a_long_timeline_is_shown_from_its_end(detent, folder):
    (folder / "loop.py").write_text(
        "from detent import Flow, Machine, Outcome\n"
        "loop = Flow(Machine('loop', start='a', moves={'a': ['b', 'end'], 'b': ['a']}, ends=['end']))\n"
        "@loop.step('a')\n"
        "def a(ctx): return 'end' if ctx.visit > 150 else 'b'\n"
        "@loop.step('b')\n"
        "def b(ctx): return 'a'\n"
    )
    detent("run", "loop.py", "--id", "r1", "-q")
    said = detent("show", "r1")
    assert any("entries between; --all shows them" in line for line in said.lines)
    assert len(said.lines) < 80
    assert len(detent("show", "r1", "--all").lines) > 300


def test_why_explains_every_move(detent, started):
    run_id = started()
    said = detent("why", run_id)
    assert "because      small amount" in said.out
    assert detent("why", run_id, "--json").json[0]["reason"] == "form read"


def test_metrics_of_a_run_of_a_flow_and_of_everything(detent, started):
    run_id = started()
    assert "Total Transitions: 3" in detent("metrics", run_id).out
    assert detent("metrics", run_id, "--json").json["tokens"] == 15
    assert "Total Transitions: 3" in detent("metrics", "--flow", "onboarding", "--since", "7d").out
    assert detent("metrics", "--flow", "onboarding", "--json").json["totals"]["total_transitions"] == 3
    assert [one["flow"] for one in detent("metrics", "--json").json] == ["onboarding"]
    said = detent("metrics", "--flow", "onbording")
    assert (said.code, "Did you mean 'onboarding'" in said.err) == (2, True)


def test_diagrams_of_a_flow_a_file_and_a_run(detent, started, folder):
    run_id = started()
    assert "stateDiagram-v2" in detent("diagram", "flow.py").out
    assert "stateDiagram-v2" in detent("diagram", "onboarding", "--plugin", "flow.py").out
    assert "class" in detent("diagram", run_id).out
    said = detent("diagram", run_id, "--format", "svg", "--output", "x.svg")
    assert (said.code, said.out) == (0, "")
    assert (folder / "x.svg").read_text().lstrip().startswith("<svg")
    assert detent("diagram", "flow.py", "-o", "gone/x.mmd").code == 2


def test_compare_says_where_two_runs_part(detent, started):
    one, other = started(name="a"), started(name="b", amount=500)
    assert "differ first" in detent("compare", one, other).out
    assert detent("compare", one, other, "--json").json["runs"] == [one, other]


def test_check_tells_all_problems_at_once(detent, folder):
    (folder / "bad.py").write_text(
        "from detent import Flow, Machine\n"
        "half = Flow(Machine('half', start='a', moves={'a': ['b']}, ends=['b']), {'q': lambda ctx: 1})\n"
    )
    (folder / "worse.py").write_text(
        "from detent import Machine\n"
        "Machine('m', start='a', moves={'a': ['b', 'z'], 'c': ['a']}, ends=['b'])\n"
    )
    assert (detent("check", "flow.py").code, detent("check", "flow.py").out) == (
        0,
        "onboarding: ok, 4 steps\n",
    )
    said = detent("check", "flow.py", "bad.py", "worse.py")
    assert said.code == 2
    assert "F01 'a': has no step." in said.lines
    assert "F02 'q': has a step but is not a state." in said.lines
    assert "half: 2 errors" in said.lines
    assert len([line for line in said.lines if line.startswith("worse.py:2:1: ")]) == 2
    plain = detent("check", "flow.py", "bad.py", "--json").json
    assert [one["ok"] for one in plain] == [True, False]
    assert {problem["code"] for problem in plain[1]["problems"]} == {"F01", "F02"}


def test_export_gives_back_the_journal(detent, started, folder):
    run_id = started()
    lines = [json.loads(line) for line in detent("export", run_id).lines]
    assert {line.pop("run") for line in lines} == {run_id}
    again = Run.fold(run_id, [from_plain(line) for line in lines])
    assert again.status.value == "succeeded"
    said = detent("export", run_id, started(), "--output", "out.jsonl")
    assert said.out == ""
    assert len((folder / "out.jsonl").read_text().splitlines()) == 2 * len(lines)


def test_a_second_process_follows_a_run(detent, spawn):
    worker = spawn("run", "flow.py", "--id", "r1", "--set", "slow=1")
    worker.until("onboarding r1")
    worker.until_true(lambda: detent("show", "r1").code == 0, "never wrote the run down")
    said = spawn("show", "r1", "--follow").result()
    assert said.code == 0
    assert "welcome → done" in said.lines[-1]
    assert worker.result().code == 0


def test_a_folder_with_the_name_of_a_run_does_not_hide_it(detent, folder, started):
    """Only a path, or a folder that is a definition, goes before a run."""
    detent("run", "flow.py", "--id", "a3")
    (folder / "a3").mkdir()
    assert detent("show", "a3").lines[0].split() == ["run", "a3"]
    (folder / "empty").mkdir()
    said = detent("show", "empty")
    assert (said.code, "empty is an empty folder" in said.err) == (2, True), said.err
    assert detent("show", "./a3").code == 2
