"""Puts together the players of eval suites: in memory, with the scripted agent, recorded on cassettes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detent.adapters.cassette import Player as CassettePlayer
from detent.adapters.cassette import Recorder
from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.adapters.stores.memory import MemoryStore
from detent.dispatch.dispatcher import DispatchSettings
from detent.dispatch.executor import StepExecutor
from detent.engine.ports import Store, TapeCall, TapeError
from detent.evals.played import Player, PlayFailed
from detent.evals.player import FlowPlayer, Subject
from detent.evals.suite import EvalSuite
from detent.kernel.errors import ConfigurationError
from detent.runtime.dispatch_settings import dispatch_settings
from detent.runtime.settings import Settings


def player_for(suite: EvalSuite, settings: Settings, cases: Path) -> Player:
    """The player of a suite, with the agents of the project."""
    if suite.player is not None:
        return suite.player(settings, cases)
    if suite.subject is None:
        raise ConfigurationError(f"Eval suite '{suite.name}' has neither a subject nor a player.")
    dispatch = dispatch_settings(settings, (), complete=False)
    return player_of(suite.subject(settings, cases), dispatch=dispatch, suite=suite.name)


def player_of(
    subject: Subject, *, dispatch: DispatchSettings | None = None, suite: str | None = None
) -> FlowPlayer:
    """The player of a subject."""
    secrets = frozenset() if dispatch is None else dispatch.secrets
    return FlowPlayer(subject, _Parts(secrets), dispatch=dispatch, suite=suite)


class _Parts:
    """The parts that plays are built from; secrets are masked in recordings."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = secrets

    def store(self) -> Store:
        return MemoryStore()

    def script(self, replies: Mapping[str, Any]) -> StepExecutor:
        return ScriptedStepExecutor(replies, model_id="scripted")

    def recorder(self, path: Path) -> _CaseTape:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlayFailed(f"{path.parent} cannot be written to: {error.strerror}.") from None
        return _CaseTape(Recorder(path, overwrite=True, secrets=self._secrets))

    def playback(self, path: Path) -> _CaseTape:
        return _CaseTape(CassettePlayer(path, secrets=self._secrets))


class _CaseTape:
    """A cassette of agents and queries. Effects are performed: in a play they stay in the case's folder."""

    def __init__(self, cassette: Recorder | CassettePlayer) -> None:
        self._cassette = cassette
        self.plays = cassette.plays
        self.mismatches: Sequence[TapeError] = getattr(cassette, "mismatches", ())

    async def through(self, call: TapeCall, work: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, recorded on the cassette unless it belongs to an effect."""
        return await work() if call.kind == "effect" else await self._cassette.through(call, work)

    def close(self) -> None:
        """Finish the cassette."""
        self._cassette.close()
