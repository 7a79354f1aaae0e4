"""What the commands say about steps that act: who did it, what is asked of a person, what was changed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tests.cli.acting import COUNT, SETTINGS, SHOP, order, serving

FLOWS = pytest.mark.parametrize("flow", ["propose", "perform"])


@pytest.fixture
def shop(folder) -> Path:
    """A project with two flows that act, and no model."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "detent.yaml").write_text("plugins: [shop.py]\n")
    return folder


def use_model(folder: Path, url: str, more: str = "") -> None:
    """Let an agent on a model perform the steps."""
    (folder / "detent.yaml").write_text(SETTINGS % url + more)


@pytest.fixture
def asked(shop, detent, token) -> tuple[str, str]:
    """A run that waits for a person's word on an effect, and the token of the question."""
    said = detent("run", "perform", "--id", "r1", "--set", "item=bolt", "--set", "ask=true")
    assert said.code == 0
    return "r1", token("r1")


@FLOWS
def test_a_replaced_agent_is_named_by_run_why_and_show(shop, detent, flow):
    with serving(COUNT, order(99)) as model:
        use_model(shop, model.url)
        said = detent("run", flow, "--id", "r1", "--set", "item=bolt")
    assert said.code == 0
    assert "handler, not the agent: differs from the handler" in said.out
    why = detent("why", "r1").out
    assert why.count("fell back to the handler: differs from the handler") == 1
    assert "agent        tiny, collaborator" in why
    assert 'it asked for order.place({"item":"bolt","number":99})' in why
    assert "differed at  /effects/0/args/number" in why
    assert why.count('looked at    stock.count({"item":"bolt"}) → 7') == 1
    show = detent("show", "r1").out
    assert "in place of agent tiny: differs from the handler at /effects/0/args/number" in show
    assert "tiny asked for order.place" in show


class TestAPersonsWord:
    def test_run_shows_the_exact_arguments_and_every_answer(self, shop, detent):
        out = detent("run", "perform", "--id", "r1", "--set", "item=bolt", "--set", "ask=true").out
        assert "Order it?" in out
        assert out.count("order.place") == 1
        assert "    item: bolt\n" in out
        assert "    number: 3\n" in out
        assert "detent release r1 yes --hold confirm:" in out
        assert """(or: no, '{"no": "why"}', '{"edit": {""" in out

    def test_a_question_is_told_once_and_again_where_the_run_is_looked_at_later(self, asked, shop, detent):
        again = detent("run", "perform", "--set", "item=bolt", "--set", "ask=true").out
        assert again.count("Order it?") == 1
        assert "  Order it?\n  order.place\n" in detent("resume", "r1").out

    def test_show_shows_them_too(self, asked, detent):
        out = detent("show", "r1").out
        assert "waits for a person's word\n  Order it?\n  order.place\n" in out
        assert "    item: bolt\n" in out

    def test_text_of_several_lines_keeps_its_lines(self, shop, detent):
        text = (shop / "shop.py").read_text()
        (shop / "shop.py").write_text(
            text.replace("number=10 - have, confirm", "number=10 - have, note='first\\nsecond', confirm")
        )
        out = detent("run", "perform", "--set", "item=bolt", "--set", "ask=true").out
        assert "    note:\n      | first\n      | second\n" in out

    def test_at_a_terminal_the_question_comes_with_the_arguments(self, asked, detent, monkeypatch):
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
        said = detent("release", "r1")
        assert said.code == 0
        assert "Order it?\n  order.place\n" in said.out
        assert "    number: 3\n" in said.out
        assert 'yes / no / {"no": "why"} / {"edit": {"argument": value}}: ' in said.out

    def test_a_no_is_told_with_its_reason_and_without_python(self, asked, detent):
        run, token = asked
        said = detent("release", run, '{"no": "not today"}', "--hold", token, "--by", "Ann")
        assert said.code == 1
        assert "Ann answered: no: not today" in said.out
        assert "order.place denied by Ann: not today" in said.out
        assert "{'" not in said.out
        assert said.out.count("ToolError: denied: not today") == 1
        assert "denied by Ann: not today" in detent("why", run).out

    def test_an_edit_changes_what_it_names_and_keeps_the_rest(self, asked, detent, shop):
        run, token = asked
        said = detent("release", run, '{"edit": {"number": 5}}', "--hold", token, "--by", "Ann")
        assert said.code == 0
        assert 'Ann answered: edit: {"number":5}' in said.out
        assert (shop / "orders.txt").read_text() == "bolt 5 \n"

    @pytest.mark.parametrize(
        ("edit", "told"),
        [
            ('{"edit": {"numbr": 5}}', "it has no argument 'numbr'. Did you mean 'number'?"),
            ('{"edit": {"number": "five"}}', "number: must be an integer"),
        ],
    )
    def test_an_edit_that_does_not_fit_names_the_argument(self, asked, detent, edit, told):
        run, token = asked
        said = detent("release", run, edit, "--hold", token)
        assert said.code == 2
        assert told in said.err

    def test_the_help_says_what_can_be_answered(self, detent):
        out = " ".join(detent("release", "--help").out.split())
        assert """yes, no, '{"no": "why"}', or '{"edit": {"argument": value}}'""" in out


class TestNoAgentToAsk:
    SETTINGS = (
        "plugins: [shop.py]\nmodels: {big: {kind: openai, model_id: m}}\nsteps: {restock: {mode: agent}}\n"
    )

    @pytest.fixture(autouse=True)
    def without_key(self, shop, monkeypatch):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        (shop / "detent.yaml").write_text(self.SETTINGS)

    @FLOWS
    def test_a_run_says_once_which_step_why_and_what_to_do(self, detent, flow):
        said = detent("run", flow, "--set", "item=bolt")
        assert said.code == 0
        assert said.err.startswith("The model 'big' cannot be asked: OPENAI_API_KEY is not set.")
        assert said.err.count(f"{flow}/restock: OPENAI_API_KEY is not set") == 1
        assert f"detent steps show {flow}/restock" in said.err

    def test_many_runs_say_it_once(self, detent):
        said = detent("run", "propose", "--set", "item=bolt", "--many", "3")
        assert said.err.count("propose/restock: OPENAI_API_KEY") == 1
        assert "(3 times)" in said.err

    def test_json_stays_json(self, detent):
        said = detent("run", "propose", "--set", "item=bolt", "--json")
        assert said.json["status"] == "succeeded"
        assert "OPENAI_API_KEY is not set" in said.err

    def test_a_run_without_agents_says_nothing(self, detent):
        assert detent("run", "propose", "--set", "item=bolt", "--deterministic").err == ""

    def test_steps_show_says_it_before_anything_runs(self, detent):
        out = detent("steps", "show", "propose/restock").out
        assert "its handler, in place of an agent: OPENAI_API_KEY is not set" in out


class TestLevels:
    """The level in force, beside the configured one."""

    @pytest.fixture
    def lowered(self, shop, detent):
        with serving(COUNT, order(3)) as model:
            use_model(shop, model.url)
            assert detent("run", "propose", "--set", "item=bolt").code == 0
        assert (
            detent("autonomy", "demote", "propose/restock", "--reason", "bad week", "--by", "Ann").code == 0
        )

    def test_steps_list_shows_both_and_tells_since_when_by_whom_and_why(self, lowered, detent):
        line, why = [line for line in detent("steps", "list").lines if line.startswith("propose/restock")]
        assert "operator (configured: collaborator)" in line
        assert why.startswith("propose/restock was lowered from collaborator to operator on ")
        assert why.endswith(" by Ann: bad week.")
        (line,) = [line for line in detent("steps", "list").lines if line.startswith("perform/restock")]
        assert "configured" not in line

    def test_steps_show_tells_since_when_by_whom_and_why(self, lowered, detent):
        out = detent("steps", "show", "propose/restock").out
        assert "performed by  its handler: at operator the agent is not asked" in out
        assert "level         operator (configured: collaborator)" in out
        assert "by Ann: bad week." in out
        assert "detent autonomy restore propose/restock" in out
        plain = detent("steps", "show", "propose/restock", "--json").json
        assert (plain["autonomy"], plain["in_force"]) == ("collaborator", "operator")
        assert (plain["demotion"]["by"], plain["demotion"]["why"]) == ("Ann", "bad week")

    def test_the_report_shows_the_level_in_force_also_after_it_was_restored(self, lowered, detent):
        assert "operator (configured: collaborator)" in detent("autonomy", "report").lines[1]
        detent("autonomy", "restore", "propose/restock")
        line = detent("autonomy", "report").lines[1]
        assert "collaborator" in line
        assert "operator" not in line
        (row,) = detent("autonomy", "report", "--json").json["steps"]
        assert (row["now"], row["configured"]) == ("collaborator", "collaborator")

    def test_the_default_provider_is_named(self, shop, detent):
        use_model(shop, "http://127.0.0.1:1")
        out = detent("steps", "show", "propose/restock").out
        assert "provider       house         default (the only entry under models)" in out
        assert "model_id       tiny          models.house" in out


def test_a_single_step_names_what_a_receipt_will_give(shop, detent):
    out = detent("step", "propose", "restock", "--set", "item=bolt").out
    assert "set order             <order of the receipt>" in out
    assert "$receipt" not in out
