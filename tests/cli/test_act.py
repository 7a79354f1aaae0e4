"""Commands that answer, change or end a run."""

import io
import sys

import pytest

BILLS = """
from detent import Flow, Hold, Machine, Outcome, Status


def pay(ctx):
    if not ctx.answered("approval"):
        return Hold("approval", question=f"Pay bill {ctx.visit}?", choices=["yes", "no"])
    return Outcome("done" if ctx.visit == 2 else "pay", append={"paid": [ctx.visit]})


machine = Machine("bills", start="pay", moves={"pay": ["pay", "done"]}, ends={"done": Status.SUCCEEDED})
bills = Flow(machine, {"pay": pay})
"""


class Terminal(io.StringIO):
    """What a person at a terminal types."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_release_sends_a_run_on(detent, started):
    run_id = started(amount=500)
    said = detent("release", run_id, "yes", "--hold", "approval@4", "--by", "Grace")
    assert said.code == 0
    assert any("Grace answered 'approval': yes" in line for line in said.lines)
    assert said.lines[-1].startswith("succeeded in done")


def test_release_with_the_other_answer_ends_as_the_table_says(detent, started):
    run_id = started(amount=500)
    said = detent("release", run_id, "no", "--hold", "approval@4", "--json")
    assert (said.code, said.json["status"], said.json["state"]) == (1, "failed", "rejected")


def test_a_wrong_answer_changes_nothing(detent, started):
    run_id = started(amount=500)
    said = detent("release", run_id, "yess", "--hold", "approval@4")
    assert (said.code, "Answers: yes, no." in said.err) == (2, True)
    assert "Did you mean" not in said.err  # an answer is a person's decision and is never suggested
    assert detent("release", run_id, "yes", "--hold", "nope").code == 2
    assert detent("release", run_id, "yes", "--hold", "approval@4").code == 0


def test_the_same_command_sent_twice_answers_one_question(detent, folder):
    (folder / "bills.py").write_text(BILLS)
    waiting = detent("run", "bills.py", "--id", "r1")
    first = waiting.lines[-1].strip().partition("   ")[0].split()[1:]
    assert first == ["release", "r1", "yes", "--hold", "approval@2"]
    assert detent(*first).code == 0
    again = detent(*first)
    assert again.code == 2
    refused, command = again.err.splitlines()
    assert refused.startswith("'approval@2' of run r1 was answered 'yes' by person at 20")
    assert refused.endswith(" UTC. Open now: 'approval@5' (Pay bill 2?).")
    assert command == "  detent release r1 yes --hold approval@5   (or: no)"
    assert detent("show", "r1", "--json").json["data"] == {"paid": [1]}


@pytest.mark.parametrize("hold", [[], ["--hold", "approval"]])
def test_an_answer_without_a_token_is_refused_with_the_command(detent, started, hold):
    run_id = started(amount=500)
    said = detent("release", run_id, "yes", *hold)
    assert said.code == 2
    assert said.err.splitlines()[-1] == f"  detent release {run_id} yes --hold approval@4   (or: no)"
    assert detent("show", run_id, "--json").json["status"] == "waiting"


def test_at_a_terminal_the_open_question_is_shown_and_its_answer_read(detent, started, monkeypatch):
    run_id = started(amount=500)
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    said = detent("release", run_id)
    assert (said.code, said.lines[0]) == (0, "Approve 500 for Ada?")
    assert said.lines[-1].startswith("succeeded in done")


def test_at_a_terminal_an_effect_in_doubt_is_settled_by_the_answer(detent, started, monkeypatch, folder):
    run_id = started(text="boom")
    monkeypatch.setattr(sys, "stdin", Terminal("happened\n"))
    assert detent("resolve", run_id).code == 0
    assert (folder / "sent.txt").read_text().count("boom") == 1


def test_nobody_is_asked_where_there_is_no_terminal_or_no_answer(detent, started, monkeypatch):
    run_id = started(amount=500)
    for stdin in (io.StringIO("yes\n"), Terminal("\n"), Terminal("")):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert detent("release", run_id).code == 2
    assert detent("show", run_id, "--json").json["status"] == "waiting"


def test_an_answered_run_may_be_left_for_others(detent, started):
    run_id = started(amount=500)
    said = detent("release", run_id, "yes", "--hold", "approval@4", "--detach")
    assert said.lines[0] == f"{run_id} released"
    assert detent("show", run_id, "--json").json["status"] == "running"
    assert detent("resume", "--all").code == 0
    assert detent("show", run_id, "--json").json["status"] == "succeeded"


def test_an_effect_in_doubt_happened(detent, started, folder, token):
    run_id = started(text="boom")
    said = detent("resolve", run_id, "happened", "--hold", token(run_id), "--receipt", '{"id": 7}')
    assert said.code == 0
    assert (folder / "sent.txt").read_text().count("boom") == 1


def test_an_effect_in_doubt_is_skipped(detent, started, token):
    run_id = started(text="boom")
    assert detent("resolve", run_id, "skip", "--hold", token(run_id), "--json").json["status"] == "succeeded"


def test_an_effect_in_doubt_is_done_again_once(detent, started, folder, token):
    run_id = started(text="boom")
    again = ("resolve", run_id, "again", "--hold", token(run_id))
    said = detent(*again)
    assert said.code == 0
    assert (folder / "sent.txt").read_text().count("boom") == 2
    assert "waiting in welcome" in said.out
    sent_twice = detent(*again)
    assert (sent_twice.code, (folder / "sent.txt").read_text().count("boom")) == (2, 2)
    command = f"  detent resolve {run_id} happened --hold {token(run_id)}   "
    assert f"{command}(or: again to perform it, skip to go on without it)" in sent_twice.err.splitlines()


def test_resolve_takes_one_of_three_words(detent, started):
    said = detent("resolve", started(text="boom"), "happend", "--hold", "x@1")
    assert (said.code, "is settled as happened, again or skip" in said.err) == (2, True)
    assert "Did you mean" not in said.err


def test_resolve_without_a_terminal_and_without_a_word_shows_the_command(detent, started, token):
    run_id = started(text="boom")
    said = detent("resolve", run_id)
    assert (said.code, "''" in said.err) == (2, False)
    command = f"  detent resolve {run_id} happened --hold {token(run_id)}   "
    assert said.err.splitlines()[-1] == f"{command}(or: again to perform it, skip to go on without it)"
    waits = started(amount=500)
    assert detent("resolve", waits).err == f"Run {waits} has no effect in doubt.\n"


def test_a_run_that_waits_shows_its_commands_when_it_is_resumed(detent, started, token):
    doubt, question = started(text="boom"), started(amount=500)
    said = detent("resume", doubt)
    assert (said.code, said.err) == (0, "")
    command = f"  detent resolve {doubt} happened --hold {token(doubt)}   "
    assert said.lines[-1] == f"{command}(or: again to perform it, skip to go on without it)"
    assert (
        detent("resume", question).lines[-1]
        == f"  detent release {question} yes --hold approval@4   (or: no)"
    )
    assert detent("resume", question, "--json").json["status"] == "waiting"
    ended = started()
    assert detent("resume", ended).code == 2


def test_cancel_needs_no_flow(detent, started, folder):
    run_id = started(amount=500)
    (folder / "flow.py").unlink()
    said = detent("cancel", run_id, "--reason", "not wanted")
    assert said.code == 0
    assert detent("show", run_id, "--json").json["reason"] == "not wanted"
    assert detent("cancel", run_id).code == 2


def test_a_failed_run_is_reopened(detent, started, folder):
    run_id = started(broken=True)
    (folder / "flow.py").write_text(
        (folder / "flow.py").read_text().replace('ctx.data.get("broken")', "False")
    )
    said = detent("reopen", run_id, "--reason", "mended")
    assert said.code == 0
    assert "succeeded in done" in said.out


def test_fork_starts_anew_from_a_state_or_an_entry(detent, started):
    run_id = started(amount=500)
    said = detent("fork", run_id, "--at", "check", "--set", "amount=1", "--id", "other")
    assert said.code == 0
    assert said.lines[0] == "onboarding other"
    assert "succeeded in done" in said.out
    assert detent("show", "other", "--json").json["forked_from"] == {"run": run_id, "seq": 2}
    assert detent("fork", run_id, "--at", "1", "--set", "amount=1", "--json").json["status"] == "succeeded"


def test_fork_from_a_state_that_is_none_names_the_nearest(detent, started):
    run_id = started()
    said = detent("fork", run_id, "--at", "chek")
    assert said.code == 2
    assert said.err.startswith("Machine 'onboarding' has no state 'chek'. Did you mean 'check'?")
    assert detent("fork", run_id, "--at", "approve").err == f"Run {run_id} was never in 'approve'.\n"
    assert detent("fork", run_id, "--at", "99").code == 2


def test_purge_drops_private_values_and_the_run_stays_readable(detent, started):
    one, other = started(letter=True), started(letter=True, name="b")
    # The other run refers to the same letter.
    assert detent("purge", one, "--json").json == {"dropped": 0, "files": 0, "kept": []}
    assert detent("purge", other).out == "1 value dropped.\n"
    assert detent("show", one).code == 0
    assert detent("purge", "--older", "30d").out == "0 values dropped.\n"
    assert detent("purge").code == 2


def test_a_flow_run_from_a_file_is_found_again(detent, started, folder):
    run_id = started(amount=500)
    assert detent("release", run_id, "yes", "--hold", "approval@4").code == 0
    other = started(amount=500)
    (folder / "flow.py").rename(folder / "moved.py")
    said = detent("release", other, "yes", "--hold", "approval@4")
    assert (said.code, "--plugin" in said.err) == (2, True)
    assert detent("release", other, "yes", "--hold", "approval@4", "--plugin", "moved.py").code == 0


def test_a_changed_definition_is_refused_with_the_difference(detent, started, folder):
    run_id = started(amount=500)
    text = (folder / "flow.py").read_text()
    (folder / "flow.py").write_text(
        text.replace('"approve": ["welcome", "rejected"]', '"approve": ["rejected"]')
    )
    said = detent("release", run_id, "yes", "--hold", "approval@4")
    assert said.code == 2
    assert "move removed: approve → welcome" in said.err
