"""The golden transcripts: what legacy mode does about every case that holds for it, frozen.

`python -m detent.apps.warranty.evals.golden` writes those that are not there. One that is there stays as it
is: legacy mode does not change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from detent.apps.warranty.evals import shipped_cases, suite
from detent.apps.warranty.evals.player import WarrantyPlayer
from detent.apps.warranty.settings import read
from detent.evals.case import LEGACY, EvalTestCase
from detent.evals.reading import read_cases


def golden() -> Path:
    """The folder of transcripts, one `<scenario_id>.txt` a case."""
    return Path(str(resources.files("detent.apps.warranty.evals") / "legacy_golden"))


def legacy_cases(player: WarrantyPlayer) -> list[EvalTestCase]:
    """The shipped cases that hold for legacy mode."""
    found = read_cases(
        shipped_cases(), input_keys=player.input_keys, contracts=player.contracts, ignore=suite.ignore
    )
    return [case for case in found.check().cases if LEGACY in case.orchestrators]


async def transcripts(player: WarrantyPlayer, cases: Iterable[EvalTestCase]) -> dict[str, str]:
    """What legacy mode does now, by case."""
    return {case.scenario_id: await player.transcript(case) for case in cases}


async def _write(folder: Path) -> list[str]:
    player = WarrantyPlayer(read({}, folder), shipped_cases())
    new = [case for case in legacy_cases(player) if not (folder / f"{case.scenario_id}.txt").exists()]
    for name, text in (await transcripts(player, new)).items():
        await asyncio.to_thread((folder / f"{name}.txt").write_text, text, encoding="utf-8")
    return [case.scenario_id for case in new]


def main() -> None:
    """Write the transcripts that are missing."""
    folder = golden()
    folder.mkdir(exist_ok=True)
    written = asyncio.run(_write(folder))
    print(f"{len(written)} written to {folder.name}")


if __name__ == "__main__":
    main()
