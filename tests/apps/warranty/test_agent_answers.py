"""An eval with a model tells how many answers were the model's; models answer over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.acting import serving
from tests.cli.conftest import detent, folder

__all__ = ["detent", "folder"]

FEW = ("-s", "valid_warranty_00")
PROJECT = """
model: {{provider: house, model_id: tiny}}
models:
  house: {{kind: vllm, base_url: "{url}/v1", model_id: tiny}}
{more}
"""
FIRST = "steps:\n  01-extract-serial: {mode: agent, autonomy: consultant}\n"


def project(folder: Path, url: str, more: str = FIRST) -> None:
    (folder / "detent.yaml").write_text(PROJECT.format(url=url, more=more))


def report(folder: Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return plain


def test_a_constant_answer_passes_every_case_and_none_alone(detent, folder):
    """The handlers pass the cases, and the report says that none of it was the model's."""
    with serving("I would gladly help.") as model:
        project(folder, model.url)
        result = detent("eval", "warranty", "--json", "r.json", "--junit", "r.xml")
        few = detent("eval", "warranty", "-s", "missing_info_001", "--min-kept", "0.5")
    found = report(folder)
    assert result.code == 0, result.out
    assert (found["passed"], found["counted"]) == (56, 56)
    answers = found["answers"]
    assert answers["asked"] >= 40
    assert (answers["kept"], answers["replaced"]) == (0, {"schema_violation": answers["asked"]})
    assert found["agent_alone"]["passed"] == 0
    assert found["agent_alone"]["counted"] == answers["asked"]
    assert "autoresponder_001" in found["agent_alone"]["without_agent"]
    assert "agent_reask_001" in found["agent_alone"]["scripted"]
    assert f"by the agent alone 0 / {answers['asked']} (0.0 %)" in result.out
    root = ElementTree.parse(folder / "r.xml").getroot()
    values = {item.get("name"): item.get("value") for item in root[-1].findall("properties/property")}
    assert values["answers.replaced.schema_violation.01-extract-serial"] == str(answers["asked"])
    assert few.code == 4
    assert "0.0 %), fewer than 50 %" in few.lines[-1]


def test_a_plausible_wrong_answer_is_kept_and_fails_its_case(detent, folder):
    """An answer that fits the form and is wrong is the agent's, so the case is its failure."""
    with serving({"about": "advertising"}) as model:
        project(folder, model.url)
        result = detent("eval", "warranty", "-s", "missing_info_001", "--json", "r.json", "--min-kept", "1")
    found = report(folder)
    assert result.code == 4
    assert (found["answers"]["asked"], found["answers"]["kept"]) == (1, 1)
    assert (found["passed"], found["agent_alone"]["passed"], found["agent_alone"]["counted"]) == (0, 0, 1)
    assert "fewer than" not in result.out


def test_a_right_answer_is_the_agents_alone(detent, folder):
    with serving({"about": "device"}) as model:
        project(folder, model.url)
        result = detent(
            "eval", "warranty", "-s", "missing_info_001", "--json", "r.json", "--min-kept", "100%"
        )
    assert result.code == 0, result.out
    assert report(folder)["agent_alone"]["passed"] == 1


def test_without_a_model_the_figures_are_the_handlers_and_no_share_is_met(detent):
    plain = detent("eval", "warranty", *FEW)
    assert plain.code == 0
    assert "no agent was asked: these figures are the handlers'" in plain.out
    required = detent("eval", "warranty", *FEW, "--min-kept", "0.01")
    assert required.code == 4
    assert "no agent was asked, so nothing shows that 1 % of its answers are kept" in required.lines[-1]


@pytest.mark.parametrize("value", ["0", "-0.5", "1.01", "90", "nan", "inf", "", "most", "0.5%%", "101%", "%"])
def test_a_share_that_is_none_ends_with_2(detent, value):
    result = detent("eval", "warranty", *FEW, "--min-kept", value)
    assert result.code == 2
    assert "--min-kept takes a share above 0 and at most 1" in result.err


def test_an_unreachable_model_is_replaced_and_not_kept(detent, folder):
    project(folder, "http://127.0.0.1:9")
    result = detent("eval", "warranty", "-s", "missing_info_001", "--json", "r.json")
    assert result.code == 0
    answers = report(folder)["answers"]
    assert answers["kept"] == 0
    assert sum(answers["replaced"].values()) + sum(answers["not_asked"].values()) == 1


# -- routing ------------------------------------------------------------------------------------------------

ROUTED = "orchestration: {router: {strategy: %s}}\n"
LEAP = "SERIAL: LM-77-0412\nNEXT_STEP: 02-check-warranty"


def routed_by(detent: Any, folder: Path, reply: str, *cases: str) -> dict[str, Any]:
    from tests.cli.acting import Model

    class Text(Model):
        """Gives the reply as it stands, not as JSON."""

        def answer(self, body: Any) -> dict[str, Any]:
            plain = super().answer(body)
            plain["choices"][0]["message"]["content"] = reply
            return plain

    with serving(reply) as model:
        model.answer = Text(reply).answer  # type: ignore[method-assign]
        project(folder, model.url, ROUTED % "llm")
        detent("eval", "warranty", *cases, "--json", "r.json")
    return report(folder)


def test_the_heuristic_strategy_passes_the_cases_it_shortens(detent, folder):
    (folder / "detent.yaml").write_text(ROUTED % "heuristic")
    result = detent("eval", "warranty", "--json", "r.json")
    found = report(folder)
    shortened = [case for case in found["cases"] if case["skipped"]]
    assert len(shortened) >= 5
    assert all(case["path"][0] == "02-check-warranty" for case in shortened)
    assert [case["failures"] for case in shortened if not case["passed"]] == []
    assert result.code == 0, result.out


def test_a_model_that_rightly_skips_the_first_step_passes_alone(detent, folder):
    (case,) = (found := routed_by(detent, folder, LEAP, "-s", "valid_warranty_short_003"))["cases"]
    assert (case["skipped"], case["path"][0]) == (["01-extract-serial"], "02-check-warranty")
    assert (case["passed"], case["passed_alone"]) == (True, True)
    assert found["answers"]["by_step"]["router"]["kept"] == 1


def test_a_model_that_skips_a_step_with_the_number_of_an_order_fails(detent, folder):
    """The number is in the mail, so routing takes it."""
    reply = "SERIAL: ZX-558812\nNEXT_STEP: 02-check-warranty"
    (case,) = (found := routed_by(detent, folder, reply, "-s", "order_number_001"))["cases"]
    assert case["skipped"] == ["01-extract-serial"]
    assert not case["passed"]
    assert {"data", "step_wrong"} <= {failure["kind"] for failure in case["failures"]}
    assert (found["answers"]["kept"], found["agent_alone"]["passed"]) == (1, 0)


def test_a_router_answer_that_cannot_be_used_is_replaced(detent, folder):
    found = routed_by(detent, folder, "I would gladly help.", "-s", "valid_warranty_short_003")
    assert found["answers"]["by_step"]["router"]["replaced"] == {"schema_violation": 1}
    assert (found["passed"], found["agent_alone"]["passed"]) == (1, 0)
