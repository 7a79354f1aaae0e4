"""What a real small model answered to the shipped cases, played back: the published figures are true.

See `recorded/README.md` for how to record anew when what is asked has changed.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from detent.evals.case import EvalTestCase
from detent.evals.played import PlayOptions
from detent.evals.player import FlowPlayer
from detent.evals.reading import read_cases
from detent.runtime.settings import read_settings
from tests.apps.warranty.test_evals import cases_for, judged, project_player
from tests.cli.conftest import detent, folder
from tests.examples import one_in

__all__ = ["detent", "folder"]

RECORDED = Path(__file__).parent / "recorded"
PAGE = Path(__file__).parents[3] / "docs" / "models.md"
MOST_BYTES = 1_000_000
AGAIN = "What the agents are asked has changed: record anew as recorded/README.md says."

FIGURES: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "first-step": ("55 of 56", {"01-extract-serial": (42, 42)}),
    "fresh-mails": ("16 of 16", {"01-extract-serial": (16, 16)}),
    "every-step": (
        "43 of 56",
        {
            "01-extract-serial": (37, 37),
            "02-check-warranty": (26, 26),
            "03a-valid-warranty": (17, 17),
            "03b-device-not-found": (1, 1),
            "03c-expired-warranty": (7, 7),
            "03d-request-serial": (9, 8),
            "04-out-of-scope": (4, 4),
            "05-send-confirmation": (17, 17),
        },
    ),
}
"""Per recording: cases passed; per step, how often the model was asked and how often its answer was kept."""

LEVELS = {
    "collaborator": (118, 116, 2, 1, "44 of 56", "36 of 49"),
    "approver": (118, 117, 1, 2, "43 of 56", "36 of 49"),
}
"""The answers of `every-step` at each level: asked, kept, replaced, failed cases with every answer kept,
cases passed as delivered, and by the model alone."""
UNPLAYED = {"every-step": 10}
"""Cases of a recording that cannot be replayed: what an agent is told after a refusal has changed since."""

CODE = {"first-step": "56 of 56", "fresh-mails": "16 of 16"}
"""What code alone comes to on the same cases."""


def recorded(name: str) -> tuple[FlowPlayer, list[EvalTestCase]]:
    """A player under the settings of a recording, and the cases that are in it."""
    found = read_settings(folder=RECORDED / name)
    player = project_player(found)
    if (own := RECORDED / name / "cases").is_dir():
        read = read_cases(own, player)
        return player, list(read.check().cases)
    return player, cases_for(player, None)


@pytest.mark.parametrize("name", one_in(3, FIGURES))
async def test_the_figures_of_a_recording_are_those_that_are_published(name):
    """W-58: no network, no model; the path, the data and the words of every case are judged."""
    player, cases = recorded(name)
    options = PlayOptions(replay=RECORDED / name)
    report = await judged(player, cases, options=options)
    misses = [str(one) for result in report.cases for one in result.failures if one.kind == "play"]
    assert len(misses) == UNPLAYED.get(name, 0), f"{AGAIN} {misses[0]}"
    await player.close()
    passed, steps = FIGURES[name]
    assert f"{report.passed} of {report.counted}" == passed
    counted = {step: (counts.asked, counts.kept) for step, counts in report.answers_by_step.items()}
    assert counted == steps


@pytest.mark.exhaustive
@pytest.mark.parametrize("level", LEVELS)
async def test_the_same_answers_at_each_level_come_to_the_published_figures(level, tmp_path):
    written = (RECORDED / "every-step" / "detent.yaml").read_text()
    if level == "collaborator":
        written = written.replace(", prose: free", "")
    (tmp_path / "detent.yaml").write_text(re.sub(r"autonomy: \w+", f"autonomy: {level}", written))
    player = project_player(read_settings(folder=tmp_path))
    report = await judged(
        player, cases_for(player, None), options=PlayOptions(replay=RECORDED / "every-step")
    )
    await player.close()
    counts, alone = report.answers, report.agent_alone
    found = [case for case in report.cases if not case.passed and not case.unplayed]
    untouched = sum(not any(answer.by_handler for answer in case.answers) for case in found)
    row = (counts.asked, counts.kept, sum(counts.replaced.values()), untouched)
    figures = (*row, f"{report.passed} of {report.counted}", f"{alone.passed} of {alone.counted}")
    assert figures == LEVELS[level]
    cells = " | ".join(map(str, figures))
    named = "approver, mails with `prose: free`" if level == "approver" else level
    assert f"| {named} | {cells} |" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", one_in(2, CODE))
async def test_code_is_measured_by_the_same_cases(name):
    """What the published figures are to be held against."""
    player, cases = recorded(name)
    await player.close()
    code = project_player(read_settings(folder=RECORDED))
    report = await judged(code, cases)
    assert f"{report.passed} of {report.counted}" == CODE[name]


def test_the_program_replays_it_too(detent, folder):
    """`detent eval warranty --replay`, in agent mode, from a project that names the model."""
    shutil.copy(RECORDED / "first-step" / "detent.yaml", folder / "detent.yaml")
    result = detent("eval", "warranty", "--replay", str(RECORDED / "first-step"), "--threshold", "90")
    assert "qwen2.5-coder-1.5b" in result.lines[0]
    passed, counted = FIGURES["first-step"][0].split(" of ")
    assert f"{passed} / {counted} passed" in result.out, f"{AGAIN} {result.out}"
    assert result.code == 0


def test_a_recording_that_does_not_fit_any_more_says_how_to_make_another(detent, folder):
    shutil.copy(RECORDED / "first-step" / "detent.yaml", folder / "detent.yaml")
    settings = folder / "detent.yaml"
    settings.write_text(settings.read_text().replace("max_tokens: 700", "max_tokens: 701"))
    result = detent("eval", "warranty", "--replay", str(RECORDED / "first-step"), "-s", "missing_info_001")
    assert result.code == 4
    assert "01-extract-serial, play: " in result.out
    assert "missing_info_001.jsonl: asked for something other than what was recorded" in result.out
    assert "max_tokens" in result.out
    assert "record it anew with the same model: detent eval warranty --record first-step" in result.out


def test_a_recording_of_an_earlier_format_is_refused_with_what_to_do(detent, folder):
    (folder / "tapes").mkdir()
    line = '{"repeat":1,"hash":"9c78","request":{"step":"01-extract-serial"},"calls":[],"reply":"x"}'
    (folder / "tapes" / "missing_info_001.jsonl").write_text(line + "\n")
    result = detent("eval", "warranty", "--replay", "tapes", "-s", "missing_info_001")
    assert result.code == 4
    assert "missing_info_001.jsonl, line 1: this is no cassette" in result.out
    assert "detent eval warranty --record tapes" in result.out


def test_the_page_tells_the_same_figures():
    page = PAGE.read_text(encoding="utf-8")
    for name, (passed, steps) in FIGURES.items():
        assert passed in page, name
        for step, (asked, kept) in steps.items():
            assert re.search(rf"^\| `{step}`.*\| {kept} of {asked} \|", page, re.MULTILINE), (name, step)


def test_recordings_are_small():
    assert sum(path.stat().st_size for path in RECORDED.rglob("*.jsonl")) < MOST_BYTES
