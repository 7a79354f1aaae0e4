"""`detent eval`: suites from files, plugins, packages and folders; exit codes; reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.evals.lending import write_cases

SUITE = """
from pathlib import Path
from detent.evals.suite import EvalSuite
from tests.evals.lending import LendingPlayer

def player(settings, folder):
    return LendingPlayer(folder)

def claim(folder):
    there = folder / "desk" / "cases"
    return EvalSuite("claimed", player, there) if there.is_dir() else None

lending = EvalSuite("lending", player, Path("cases"), claim=claim)
"""

BAD = """
scenario_id: zz_fails
description: d
category: trouble
input: {data: {request: 'Please lend me "Dune"'}}
expected_output:
  expected_steps: ["01", "03b"]
"""
BROKEN = "scenario_id: zz_broken\ndescription: d\ncategory: trouble\nexpected_output: {statsu: x}\n"


@pytest.fixture(autouse=True)
def suite(folder: Path) -> Path:
    """A suite in a file of the working folder."""
    (folder / "suite.py").write_text(SUITE)
    write_cases(folder / "cases")
    return folder


def add(folder: Path, name: str, text: str) -> None:
    (folder / "cases" / f"{name}.yaml").write_text(text.lstrip())


def test_a_suite_that_passes_ends_with_0(detent):
    """W-57."""
    result = detent("eval", "suite.py")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0] == "eval lending   4 cases   step mode   no model"
    assert result.lines[1].startswith("  ✓ lend_001          01 → 02 → 03a")
    assert result.lines[-1] == "  4 / 4 passed (100.0 %)   threshold 99.0 %"


def test_a_suite_below_its_threshold_ends_with_4(detent, folder):
    """W-57."""
    add(folder, "zz_fails", BAD)
    result = detent("eval", "suite.py")
    assert result.code == 4
    assert result.lines[-1] == "  4 / 5 passed (80.0 %)   threshold 99.0 %   below threshold"
    assert detent("eval", "suite.py", "--threshold", "80").code == 0
    (folder / "detent.yaml").write_text("eval: {pass_threshold: 75.5}\n")
    assert detent("eval", "suite.py").code == 0


def test_a_required_case_that_fails_ends_with_4(detent, folder):
    """W-57."""
    add(folder, "zz_fails", BAD.replace("category", "required: true\ncategory"))
    result = detent("eval", "suite.py", "--threshold", "1")
    assert result.code == 4
    assert result.lines[-1].endswith("required case failed: zz_fails")


def test_nothing_found_ends_with_4(detent, folder):
    """W-57."""
    (folder / "empty").mkdir()
    result = detent("eval", "suite.py", "--eval-dir", "empty")
    assert (result.code, result.err.strip()) == (4, "Suite 'lending' has no case in empty.")


@pytest.mark.parametrize(
    "filter", [("-s", "nobody"), ("--category", "none"), ("--tag", "none"), ("--step", "99"), ("--failed",)]
)
def test_a_filter_that_matches_nothing_ends_with_4(detent, filter):
    """W-57."""
    result = detent("eval", "suite.py", *filter)
    assert result.code == 4
    assert result.err


@pytest.mark.parametrize(
    ("filter", "count"),
    [(("-s", "LENT"), 1), (("--category", "waiting"), 2), (("--tag", "en"), 1), (("--step", "03c"), 1)],
)
def test_cases_can_be_picked(detent, filter, count):
    result = detent("eval", "suite.py", *filter)
    assert result.code == 0
    assert f"   {count} case" in result.lines[0]


def test_only_what_failed_last_time_is_played_again(detent, folder):
    add(folder, "zz_fails", BAD)
    assert detent("eval", "suite.py").code == 4
    again = detent("eval", "suite.py", "--failed")
    assert again.code == 4
    assert "1 case " in again.lines[0]
    add(folder, "zz_fails", BAD.replace('"01", "03b"', '"01", "02", "03a"'))
    assert detent("eval", "suite.py", "--failed").code == 0
    assert detent("eval", "suite.py", "--failed").err.startswith("Nothing failed in the last report")


def test_a_broken_file_ends_with_2_and_its_line(detent, folder):
    """W-59."""
    add(folder, "zz_broken", BROKEN)
    result = detent("eval", "suite.py")
    assert result.code == 2
    assert (
        "cases/zz_broken.yaml:4:19: 'statsu' is not a key of 'expected_output'. Did you mean 'status'?"
        in result.err
    )


def test_a_broken_file_counts_as_failed_when_the_rest_is_to_be_played(detent, folder):
    add(folder, "zz_broken", BROKEN)
    result = detent("eval", "suite.py", "--keep-going")
    assert result.code == 4
    assert result.lines[-1].startswith("  4 / 5 passed")
    assert any("zz_broken.yaml:4" in line for line in result.lines)
    assert detent("eval", "suite.py", "--keep-going", "-s", "lend_").code == 0
    assert detent("eval", "suite.py", "--keep-going", "--threshold", "80").code == 0


def test_json_and_junit_are_written_and_agree(detent, folder):
    """W-59."""
    add(folder, "zz_fails", BAD)
    result = detent("eval", "suite.py", "--json", "r.json", "--junit", "r.xml", "--repeat", "2")
    plain = json.loads((folder / "r.json").read_text())
    root = ElementTree.parse(folder / "r.xml").getroot()
    assert (plain["counted"], plain["passed"], plain["ok"]) == (10, 8, False)
    assert (root.get("tests"), root.get("failures")) == ("10", "2")
    assert result.lines[-1].startswith("  8 / 10 passed")


def test_json_can_be_printed_alone(detent):
    result = detent("eval", "suite.py", "--json", "-")
    assert result.json["suite"] == "lending"
    assert result.code == 0


def test_two_reports_are_compared(detent, folder):
    detent("eval", "suite.py", "--json", "a.json")
    same = detent("eval", "--compare", "a.json", "a.json")
    assert (same.code, same.out) == (0, "no difference\n")
    add(folder, "lent_out_001", (folder / "cases/lent_out_001.yaml").read_text().replace('"03c"', '"03a"'))
    detent("eval", "suite.py", "--json", "b.json")
    worse = detent("eval", "--compare", "a.json", "b.json")
    assert worse.code == 4
    assert worse.lines[:2] == ["newly failing: 1", "  lent_out_001"]  # a busy machine may add times
    assert detent("eval", "--compare", "a.json", "none.json").code == 2
    assert detent("eval", "--compare", "a.json", "suite.py").code == 2


def test_outputs_failures_and_details_are_shown_on_request(detent, folder):
    add(folder, "zz_fails", BAD)
    assert "| TITLE: Dune" in detent("eval", "suite.py", "-v").out
    few = detent("eval", "suite.py", "-f", "-d")
    assert "lend_001" not in few.out
    assert "expected | 03b-ask-title" in few.out


def test_both_modes_can_be_played(detent):
    result = detent("eval", "suite.py", "--orchestrator", "both")
    assert result.code == 0
    assert "lend_001 [legacy]" in result.out
    assert "not applicable: expected_steps" in result.out
    bad = detent("eval", "suite.py", "--orchestrator", "legcy")
    assert bad.code == 2
    assert "Did you mean 'legacy'?" in bad.err


def test_the_mode_of_the_project_is_used_unless_another_is_named(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [suite.py]\n")
    in_legacy = "made = LendingPlayer(folder)\n    made.usual_orchestrator = 'legacy'\n    return made"
    (folder / "suite.py").write_text(SUITE.replace("return LendingPlayer(folder)", in_legacy))
    assert "legacy mode" in detent("eval").lines[0]
    assert "step mode" in detent("eval", "--orchestrator", "step").lines[0]


def test_arms_are_played_and_compared(detent):
    result = detent("eval", "suite.py", "--arm", "plain", "--arm", "agent")
    assert result.code == 0
    assert any(line.split()[:3] == ["agent", "4", "/"] for line in result.lines)
    bad = detent("eval", "suite.py", "--arm", "agnt")
    assert bad.code == 2
    assert "Did you mean 'agent'? Arms: plain, agent." in bad.err


def test_repetitions_and_jobs_change_nothing_about_the_order(detent):
    """W-55."""
    one = detent("eval", "suite.py", "--repeat", "3", "--deterministic", "--jobs", "1", "--json", "-").json
    four = detent("eval", "suite.py", "--repeat", "3", "--deterministic", "--jobs", "4", "--json", "-").json
    labels = [[(case["scenario_id"], case["repeat"]) for case in report["cases"]] for report in (one, four)]
    assert labels[0] == labels[1]
    assert one["unstable"] == four["unstable"] == []


@pytest.mark.parametrize(
    "args",
    [
        ("--threshold", "0"), ("--threshold", "101"), ("--jobs", "0"), ("--repeat", "0"),
        ("--record", "a", "--replay", "b"), ("--replay", "none"), ("--eval-dir", "none"),
        ("--config", "none"), ("--json", "none/r.json"),
    ],
)  # fmt: skip
def test_a_command_line_that_makes_no_sense_ends_with_2(detent, args):
    result = detent("eval", "suite.py", *args)
    assert result.code == 2
    assert result.err.count("\n") <= 2
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "said", ["jobs: many", "jobs: 0", "pass_threshold: 200", "test_suite_path: [1]", "job: 1"]
)
def test_settings_that_make_no_sense_end_with_2_and_their_line(detent, folder, said):
    (folder / "detent.yaml").write_text(f"plugins: [suite.py]\neval:\n  {said}\n")
    (folder / "suite.py").write_text(SUITE.replace('Path("cases")', "None"))
    result = detent("eval")
    assert result.code == 2
    assert "detent.yaml:3:3" in result.err


# -- where suites come from ---------------------------------------------------------------------------------


def test_without_an_argument_every_suite_of_the_project_is_played(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [suite.py, other.py]\n")
    (folder / "other.py").write_text(
        SUITE.replace('"lending"', '"second"').replace("claim=claim", "claim=None")
    )
    result = detent("eval")
    assert result.code == 0
    assert [line.split()[1] for line in result.lines if line.startswith("eval")] == ["lending", "second"]
    assert detent("eval", "second").code == 0
    both = detent("eval", "--json", "r.json")
    assert both.code == 2
    assert "name it: lending, second" in both.err


def test_one_suite_that_fails_fails_the_whole(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [suite.py, other.py]\n")
    (folder / "other.py").write_text(
        SUITE.replace('"lending"', '"second"').replace('Path("cases")', 'Path("bad")')
    )
    write_cases(folder / "bad", zz_fails=BAD)
    assert detent("eval").code == 4


def test_an_unknown_suite_is_told_with_those_there_are(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [suite.py]\n")
    result = detent("eval", "lendign")
    assert result.code == 2
    assert "There is no eval suite 'lendign'. Did you mean 'lending'?" in result.err


def test_a_file_without_a_suite_is_told(detent):
    result = detent("eval", "flow.py")
    assert result.code == 2
    assert "flow.py defines no eval suite" in result.err


def test_a_folder_is_judged_by_the_suite_that_knows_it(detent, folder):
    (folder / "detent.yaml").write_text("plugins: [suite.py]\n")
    write_cases(folder / "my" / "desk" / "cases")
    result = detent("eval", "my")
    assert (result.code, result.lines[0].split()[1]) == (0, "claimed")
    (folder / "strange").mkdir()
    strange = detent("eval", "strange")
    assert strange.code == 2
    assert "No suite knows how to judge the folder strange" in strange.err


@pytest.fixture
def installed(folder, tmp_path_factory, monkeypatch):
    """A package that offers the desk's suite, with cases of its own, as the usual one."""
    place = tmp_path_factory.mktemp("site")
    write_cases(place / "shipped")
    info = place / "desk-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: desk\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[detent.evals]\ndesk = desk_suite:suite\n")
    (place / "desk_suite.py").write_text(
        "from pathlib import Path\nfrom tests.evals.lending import make_suite\n\n"
        "def suite():\n    return make_suite(Path(__file__).parent / 'shipped')\n"
    )
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "desk_suite", raising=False)
    return place


def test_a_package_offers_its_suite_with_its_shipped_cases(detent, installed):
    result = detent("eval", "lending")
    assert result.code == 0
    assert result.lines[0].endswith("shipped cases, for there is no folder evals/scenarios here")


def test_the_projects_own_cases_win_over_the_shipped_ones(detent, folder, installed):
    write_cases(folder / "evals" / "scenarios", zz_fails=BAD)
    result = detent("eval", "lending")
    assert result.code == 4
    assert "5 cases" in result.lines[0]
    assert "shipped" not in result.lines[0]
    (folder / "detent.yaml").write_text("eval: {test_suite_path: cases}\n")
    assert "4 cases" in detent("eval", "lending").lines[0]


def test_a_package_whose_suite_cannot_be_loaded_is_named(detent, installed):
    (installed / "desk_suite.py").write_text("def suite():\n    return 3\n")
    result = detent("eval", "lending")
    assert result.code == 2
    assert "Eval suite 'desk' (desk_suite:suite) gives a int, not an EvalSuite." in result.err
