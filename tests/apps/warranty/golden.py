"""The golden transcripts: what legacy mode does about every case that holds for it, frozen.

`python -m tests.apps.warranty.golden` writes those that are not there. One that is there stays as it is:
legacy mode does not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from detent.apps.warranty.evals import suite
from detent.apps.warranty.evals.cases import shipped_cases
from detent.apps.warranty.evals.subject import LEGACY, TRANSCRIPT, WarrantySubject
from detent.apps.warranty.settings import read
from detent.evals.case import EvalTestCase
from detent.evals.played import PlayOptions
from detent.evals.player import FlowPlayer
from detent.evals.reading import read_cases
from detent.runtime.evals import player_of

GOLDEN = Path(__file__).parent / "legacy_golden"
"""One `<scenario_id>.txt` a case."""


def legacy_cases(player: FlowPlayer) -> list[EvalTestCase]:
    """The shipped cases that hold for legacy mode."""
    found = read_cases(shipped_cases(), player, ignore=suite.ignore)
    return [case for case in found.check().cases if case.holds_for(LEGACY)]


async def transcripts(player: FlowPlayer, cases: Iterable[EvalTestCase]) -> dict[str, str]:
    """What legacy mode does now, by case."""
    texts: dict[str, str] = {}
    for case in cases:
        played = await player.play(case, orchestrator=LEGACY, options=PlayOptions())
        texts[case.scenario_id] = played.artifacts[TRANSCRIPT][0]["text"]
    return texts


async def write() -> list[str]:
    """Write the transcripts that are missing."""
    player = player_of(WarrantySubject(read({}, GOLDEN), shipped_cases()))
    new = [case for case in legacy_cases(player) if not (GOLDEN / f"{case.scenario_id}.txt").exists()]
    for name, text in (await transcripts(player, new)).items():
        (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    return [case.scenario_id for case in new]


if __name__ == "__main__":
    print(f"{len(asyncio.run(write()))} written to {GOLDEN.name}")
