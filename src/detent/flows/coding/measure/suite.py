"""The eval suite of the coding flow: the scenarios of the measurement, with what is expected of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.evals.suite import EvalSuite
from detent.flows.coding.measure.case_input import INPUT, scenario_of

if TYPE_CHECKING:
    from detent.evals.case import EvalTestCase
    from detent.evals.played import Played, Player, PlayOptions

SHIPPED = Path(__file__).parent / "scenarios"
"""The scenarios that ship with Detent."""


class MeasurePlayer:
    """Plays a scenario under one rule, in one style."""

    input_keys: Mapping[str, type] = INPUT
    orchestrators = ("step", "written", "reasoning", "legacy")
    """The flow with native calls, with the other styles of replies, and the legacy rule."""

    def contracts(self, case: EvalTestCase) -> None:
        """How the steps follow each other is the machine's own business."""

    async def play(self, case: EvalTestCase, *, orchestrator: str, options: PlayOptions) -> Played:
        """Play a case once.

        Raises:
            PlayFailed: its input is no scenario.
        """
        from detent.authoring.problem import DocumentError
        from detent.evals.played import Played, PlayFailed
        from detent.flows.coding.measure.measurement import LEGACY, play_machine, play_plain, scripted
        from detent.flows.coding.measure.script import STYLES, Style

        try:
            scenario = scenario_of(case)
        except DocumentError as error:
            raise PlayFailed(" ".join(map(str, error.problems))) from None
        if orchestrator == LEGACY:
            run = await play_plain(scenario, scripted("native"))
        else:
            style: Style = next((style for style in STYLES if style == orchestrator), STYLES[0])
            run = await play_machine(scenario, scripted(style))
        status = "failed" if run.completed_at is None else "succeeded"
        return Played(status=status, reason=run.reason, context=run._asdict())


def _player(settings: Any, folder: Path) -> Player:
    return MeasurePlayer()


SUITE = EvalSuite("coding", player=_player, folder=SHIPPED)
