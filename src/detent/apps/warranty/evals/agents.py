"""The agents of a case: scripted replies, answers recorded before, or the project's own model, recorded.

A recording is JSON lines, one a call: hash of the request, the request, what was called and answered on the
way, the reply, what it used. It is played back by what is asked: another prompt is a miss, never a guess.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.adapters.cassette import first_difference
from detent.adapters.models.scripted import ScriptedStepExecutor
from detent.engine.executor import (
    Availability,
    EventCallback,
    ExecutorError,
    ExecutorResult,
    ExecutorSource,
    OutputSchemaValidationError,
    Schema,
    StepExecutor,
    UsageMetadata,
)
from detent.engine.schemas import schema_of
from detent.evals.plans import script_of
from detent.evals.playing import PlayFailed
from detent.kernel.autonomy import FallbackReason
from detent.kernel.errors import DefinitionError
from detent.kernel.plain import copied, decode, digest, encode, to_plain

if TYPE_CHECKING:
    from detent.engine.agent_tools import AgentTools
    from detent.kernel.step_config import StepConfig

SCRIPTED = "case"
"""Provider of a case that brings its agents' replies along."""


@dataclass(frozen=True, slots=True)
class Request:
    """What an agent is asked: everything its answer depends on."""

    step_name: str
    agent_name: str
    prompt: Any
    instructions: str | None
    tools: tuple[str, ...]
    model: Mapping[str, Any]
    form: str | None = None
    """Mark of the schema its answer is to fit; None where an answer is in lines."""

    def to_plain(self) -> dict[str, Any]:
        """As a recording keeps it."""
        return {
            "step": self.step_name,
            "agent": self.agent_name,
            "instructions": self.instructions,
            "prompt": to_plain(self.prompt, "prompt"),
            "tools": list(self.tools),
            "model": dict(self.model),
            **({"form": self.form} if self.form is not None else {}),
        }


@dataclass(slots=True)
class Agents:
    """Where the executors of one case come from."""

    script: ScriptedStepExecutor | None = None
    """Who answers for the steps it has replies for."""
    project: ExecutorSource | None = None
    """Who answers for steps without a script."""
    tape: Recording | Playback | None = None

    @property
    def default(self) -> str | None:
        """The project's own provider; of a case that needs nobody else, its script."""
        usual = self.project.default if self.project is not None else None
        return usual or (SCRIPTED if self.script or isinstance(self.tape, Playback) else None)

    def make(self, provider: str) -> StepExecutor:
        """An executor that asks the script first, then the project's provider."""
        inner: StepExecutor | None = None
        if provider != SCRIPTED and self.project is not None and not isinstance(self.tape, Playback):
            inner = self.project.make(provider)
        return _CaseExecutor(self.script, inner, self.tape)

    async def close(self) -> None:
        """The project's models are shared by all cases; whoever brought them closes them."""


class _CaseExecutor:
    def __init__(
        self,
        script: ScriptedStepExecutor | None,
        inner: StepExecutor | None,
        tape: Recording | Playback | None,
    ) -> None:
        self._script = script
        self._inner = inner
        self._tape = tape

    async def execute(
        self,
        *,
        step_name: str,
        agent_name: str,
        prompt: Any,
        instructions: str | None = None,
        allowed_tools: list[str] | None = None,
        cwd: Path | None = None,
        output_schema: Schema | None = None,
        config: StepConfig | None = None,
        event_callback: EventCallback | None = None,
        toolbox: AgentTools | None = None,
    ) -> ExecutorResult:
        """One attempt: from the recording, the script or the project's model."""
        request = Request(
            step_name, agent_name, prompt, instructions,
            () if toolbox is None else tuple(tool.name for tool in toolbox.list()), _model(config),
            None if output_schema is None else digest(to_plain(schema_of(output_schema)), 16),
        )  # fmt: skip
        if isinstance(self._tape, Playback):
            return await self._tape.answer(request, toolbox)
        watched = _Watched(toolbox) if toolbox is not None and self._tape is not None else toolbox

        async def ask() -> ExecutorResult:
            scripted = self._script is not None and step_name in self._script.steps
            asked = self._script if scripted or self._inner is None else self._inner
            if asked is None:
                raise ExecutorError(f"The case has no reply for step '{step_name}'.", step_name=step_name)
            return await asked.execute(
                step_name=step_name, agent_name=agent_name, prompt=prompt, instructions=instructions,
                allowed_tools=allowed_tools, cwd=cwd, output_schema=output_schema, config=config,
                event_callback=event_callback, toolbox=watched,  # type: ignore[arg-type]
            )  # fmt: skip

        if self._tape is None:
            return await ask()
        return await self._tape.recorded(request, watched if isinstance(watched, _Watched) else None, ask)

    def available(self) -> Availability:
        """Whether somebody can answer."""
        if self._inner is None or self._script or isinstance(self._tape, Playback):
            return Availability(True)
        return self._inner.available()

    def priced(self, model_id: str | None) -> bool:
        """Whether the cost is known beforehand: a script and a recording cost nothing."""
        priced = getattr(self._inner, "priced", None)
        return True if priced is None else bool(priced(model_id))

    async def close(self) -> None:
        """Let go of the project's executor."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            await close()


def _model(config: StepConfig | None) -> dict[str, Any]:
    """What the model is told to be and do."""
    if config is None:
        return {}
    said = {name: getattr(config, name) for name in ("model_id", "temperature", "max_tokens")}
    return {name: value for name, value in said.items() if value is not None}


# -- scripts ------------------------------------------------------------------------------------------------


def scripted_agent(replies: Mapping[str, Any], named: Callable[[str], str]) -> ScriptedStepExecutor | None:
    """The agent that gives the replies of a case; None when the case has none."""
    if not replies:
        return None
    try:
        return ScriptedStepExecutor({named(step): said for step, said in script_of(replies).items()})
    except DefinitionError as error:
        raise PlayFailed(f"input.agent_replies: {'; '.join(error.problems)}") from None


# -- recording ----------------------------------------------------------------------------------------------


class _Watched:
    """A step's functions, with what is called written down."""

    def __init__(self, toolbox: AgentTools) -> None:
        self._toolbox = toolbox
        self.calls: list[dict[str, Any]] = []

    async def call(self, name: str, args: Mapping[str, Any]) -> Any:
        self.calls.append({"function": name, "arguments": to_plain(dict(args), "arguments")})
        return await self._toolbox.call(name, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._toolbox, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_toolbox", "calls"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._toolbox, name, value)

    def __iter__(self) -> Any:
        return iter(self._toolbox)

    def __len__(self) -> int:
        return len(self._toolbox)


class Recording:
    """Writes what agents are asked and answer."""

    def __init__(self, path: Path, repeat: int) -> None:
        self.path = path
        self.repeat = repeat

    async def recorded(
        self, request: Request, toolbox: _Watched | None, ask: Callable[[], Awaitable[ExecutorResult]]
    ) -> ExecutorResult:
        """Ask, and keep what came of it."""
        plain = request.to_plain()
        line: dict[str, Any] = {"repeat": self.repeat, "hash": digest(plain, 32), "request": plain}
        try:
            result = await ask()
        except ExecutorError as error:
            used = _whole(error.usage, toolbox)
            self._write({**line, "calls": _calls(toolbox), "error": _error_to_plain(error), "usage": used})
            raise
        line |= {"calls": _calls(toolbox), "reply": to_plain(result.output, "reply")}
        line |= {"success": result.success, "model_id": result.model_id}
        self._write({**line, "usage": _whole(result.usage, toolbox)})
        return result

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            with self.path.open("a", encoding="utf-8", errors="surrogatepass") as file:
                file.write(encode(line) + "\n")
        except OSError as error:
            raise PlayFailed(f"{self.path} cannot be written: {error.strerror}.") from None


def _calls(toolbox: _Watched | None) -> list[dict[str, Any]]:
    return [] if toolbox is None else toolbox.calls


def _whole(usage: UsageMetadata | None, toolbox: _Watched | None) -> dict[str, Any] | None:
    """What an answer used up, the turns on the way to it included."""
    turns = None if toolbox is None else toolbox.used
    whole = usage if turns is None else turns if usage is None else usage + turns
    return None if whole is None else whole.to_plain()


class Playback:
    """Answers from a recording; asks nobody."""

    def __init__(self, path: Path, repeat: int) -> None:
        self.path = path
        self.misses: list[PlayFailed] = []
        lines = _read(path)
        own = [line for line in lines if line.get("repeat") == repeat]
        self._left: list[Mapping[str, Any]] = own or [line for line in lines if line.get("repeat") == 1]

    async def answer(self, request: Request, toolbox: AgentTools | None) -> ExecutorResult:
        """What was answered to the same request; its calls are made anew, its failure is raised again."""
        plain = request.to_plain()
        asked = digest(plain, 32)
        line = next((one for one in self._left if one["hash"] == asked), None)
        if line is None:
            raise self._miss(request, plain)
        self._left.remove(line)
        for one in line["calls"]:
            if toolbox is not None:
                await toolbox.call(one["function"], one["arguments"])
        if line.get("error") is not None:
            raise _error_from_plain(line["error"], request.step_name, UsageMetadata.from_plain(line["usage"]))
        return ExecutorResult(
            copied(line["reply"]), bool(line.get("success", True)), UsageMetadata.from_plain(line["usage"]),
            model_id=line.get("model_id"),
        )  # fmt: skip

    def _miss(self, request: Request, plain: Mapping[str, Any]) -> ExecutorError:
        step = request.step_name
        near = next((one for one in self._left if one["request"]["step"] == step), None)
        if near is not None:
            difference = first_difference(near["request"], plain)
            message = (
                f"{self.path.name}: step '{step}' asks for something else than was recorded. {difference}"
            )
        elif not self.path.is_file():
            message = f"There is no recording {self.path.name}, and step '{step}' asks for one."
        else:
            message = f"{self.path.name}: nothing is left in the recording that step '{step}' asked for."
        hint = (
            f"what is asked has changed: record it anew with the same model, "
            f"detent eval warranty --record {self.path.parent.name}"
        )
        self.misses.append(PlayFailed(message, step_name=step, hint=hint))
        return ExecutorError(message, step_name=step)


def _read(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_file():
        return []
    found: list[Mapping[str, Any]] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = decode(text)
            line["hash"], line["request"]["step"], line["calls"]
        except (ValueError, TypeError, KeyError):
            raise PlayFailed(f"{path.name}, line {number}: this is no line of a recording.") from None
        found.append(line)
    return found


def _error_to_plain(error: ExecutorError) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "type": type(error).__name__,
        "message": str(error),
        "reason": error.reason.value,
        "transient": error.transient,
    }
    if isinstance(error, OutputSchemaValidationError):
        plain["problems"] = list(error.validation_errors)
    return plain


def _error_from_plain(said: Mapping[str, Any], step: str, usage: UsageMetadata | None) -> ExecutorError:
    if said.get("problems"):
        return OutputSchemaValidationError(step, "the contract", said["problems"], usage=usage)
    transient = bool(said.get("transient"))
    error = ExecutorError(str(said["message"]), step_name=step, transient=transient, usage=usage)
    error.reason = FallbackReason(said.get("reason") or "exception")
    return error
