"""A plan: how one step is performed under its configuration, and its prompt for agents."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.dispatch import prompt
from detent.dispatch.agent_side import agent_side, is_straight
from detent.dispatch.autonomy import AgentRole, AutonomyLevel, StepMode
from detent.dispatch.config import Resolved, StepConfig
from detent.dispatch.executor import DISPATCH_AGENT, SchemaHint
from detent.dispatch.proposal import Example
from detent.engine import logger
from detent.kernel.errors import ConfigurationError
from detent.kernel.identity_memo import IdentityMemo
from detent.kernel.plain import canonical, digest, to_plain
from detent.kernel.policy import RetryPolicy
from detent.kernel.run_config import PATH

if TYPE_CHECKING:
    from detent.dispatch.agent_tools import AgentTool
    from detent.dispatch.contract import Contract
    from detent.dispatch.conversation import Conversation, Opaque, ToolCall
    from detent.dispatch.executor import StepExecutor
    from detent.dispatch.gate import Side
    from detent.dispatch.planted import PlainAnswer
    from detent.dispatch.prompt import Prompt
    from detent.dispatch.proposal import Proposal
    from detent.engine.acts import Act
    from detent.engine.context import StepContext
    from detent.engine.flow import Flow
    from detent.engine.outcome import Effect
    from detent.engine.step import Step
    from detent.engine.tools import Tool
    from detent.kernel.run import Run


class Written(NamedTuple):
    """A reply as a dialect reads it that takes calls as part of the answer."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: str = "stop"
    """Why it ended: `stop`, `tool`, `length` (cut off at the token limit), `filter` (refused) or `other`."""
    opaque: Opaque | None = None
    """What its provider wants back with the next request."""
    model_id: str | None = None
    """The model that gave it, if that is known."""


class Dialect(ABC):
    """Builds prompts and reads answers."""

    takes_calls = False
    """Tools that a reply calls are part of its answer: they are not called in this visit, and `read` gets a
    `Written`. What becomes of them is for the step, or the steps after it, to say."""

    @abstractmethod
    def fingerprint(self, plan: Plan) -> str:
        """Changes with anything an agent is given, except the inputs."""

    async def prepare(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], *, composes: bool = False
    ) -> Mapping[str, Any]:
        """The inputs, with what must be looked up before a prompt can be built.

        With `composes`, text that the agent writes itself would not be used.
        """
        return inputs

    @abstractmethod
    def build(self, plan: Plan, inputs: Mapping[str, Any], *, secrets: frozenset[str]) -> Prompt:
        """The prompt for an agent."""

    async def conversation(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], prompt: Prompt
    ) -> Conversation:
        """The conversation that the agent is asked to go on with; a visit's own messages follow."""
        from detent.dispatch.conversation import Conversation, Message

        system = (Message("system", prompt.instructions),) if prompt.instructions else ()
        return Conversation((*system, Message("user", prompt.text)))

    def offers(self, plan: Plan, inputs: Mapping[str, Any]) -> Sequence[AgentTool] | None:
        """The tools an agent is shown; None: those the step declares. Others can only be shown where the
        dialect takes calls as part of the answer."""
        return None

    def calls(
        self,
        plan: Plan,
        answer: Any,
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
        *,
        cut: bool = False,
    ) -> Sequence[ToolCall] | None:
        """The effects that an answer in the dialect's own format asks for; None: it asks for none, and `read`
        gets it. `cut`: it was cut off at the token limit.

        Raises:
            OutputSchemaValidationError: the answer breaks the contract.
        """
        return None

    def answered(self, plan: Plan, acts: Sequence[Act], results: Sequence[str]) -> str:
        """What an agent is told after effects that an answer has asked for; `results` has a text for each."""
        return "\n\n".join(results)

    def context_tokens(self, plan: Plan, known: int | None) -> int | None:
        """Tokens that a request and its answer may have together; `known` is the model's limit, if it is
        known. None: no limit."""
        return known

    def seconds_left(self, plan: Plan, ctx: StepContext) -> float | None:
        """Seconds in which the agent must have replied, whatever its own limit; None: no limit."""
        return None

    @abstractmethod
    def refused(self, plan: Plan, problems: Sequence[str]) -> str:
        """What an agent is told after an answer that broke the contract."""

    @abstractmethod
    def schema(self, plan: Plan) -> Mapping[str, Any] | None:
        """JSON Schema of the answer; None for an answer in prose."""

    def schema_for(self, plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """JSON Schema of the answer to these inputs."""
        return self.schema(plan)

    @abstractmethod
    def read(
        self,
        plan: Plan,
        answer: Any,
        effects: Iterable[Effect],
        inputs: Mapping[str, Any],
        acts: Sequence[Act] = (),
    ) -> Proposal:
        """The proposal read from an answer.

        `effects` were called for, in this order, and are carried out once the answer is accepted; `acts` were
        performed before it.

        Raises:
            OutputSchemaValidationError: the answer breaks the contract.
        """

    @abstractmethod
    async def answer_for(
        self, plan: Plan, ctx: StepContext, inputs: Mapping[str, Any], side: Side
    ) -> PlainAnswer:
        """The answer by which an agent would have had the handler's side, in the terms of this dialect.

        Raises:
            CannotCheck: no such answer can be told.
        """

    def answer_schema(self, plan: Plan, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """JSON Schema of what `answer_for` gives, so that other values can be put into it."""
        return plan.contract.output

    @abstractmethod
    def written(self, plan: Plan, answer: PlainAnswer) -> Any:
        """An answer as an agent would write it: `read` understands it."""

    def settled(self, plan: Plan, acts: Sequence[Act]) -> bool:
        """Whether the acts settle the whole answer, so that the agent need not be asked for any of it."""
        return False

    def missing(self, plan: Plan, acts: Sequence[Act]) -> tuple[str, Mapping[str, Any] | None] | None:
        """How an agent is asked for what its acts do not settle, and the schema of the answer; None: as
        before.
        """
        return None


@dataclass(frozen=True)
class Plan:
    """How one step is performed under its configuration."""

    flow: Flow
    step: Step
    resolved: Resolved
    plain: bool
    """The driver calls the handler directly, without dispatch."""
    retry: RetryPolicy
    """Retries after transient failures of the handler."""
    timeout: float | None
    """Seconds for one call of the handler."""
    dialect: Dialect
    """How prompts are built and answers read."""
    ignored: bool = False
    """A mode is set for a step that only agents perform, where it has no effect."""

    @property
    def config(self) -> StepConfig:
        """The resolved configuration."""
        return self.resolved.config

    @property
    def agent(self) -> bool:
        """The step is in agent mode and has a handler; see `alone` for steps without one."""
        return self.resolved.config.mode is StepMode.AGENT and not self.alone

    @property
    def control(self) -> bool:
        """The step is control flow, performed by code whatever its mode."""
        return agent_side(self.step).role is AgentRole.NONE

    @property
    def alone(self) -> bool:
        """The step has no handler, so only an agent can perform it."""
        return agent_side(self.step).role is AgentRole.REQUIRED

    @property
    def reviewed(self) -> bool:
        """A person reads what an agent writes for people in this step."""
        nobody_else = self.alone or not agent_side(self.step).handled
        return bool(self.prose) and (self.resolved.config.review is not None or nobody_else)

    @cached_property
    def prose(self) -> tuple[str, ...]:
        """Where text for people is written: as the step declares, or else as its effects do."""
        side, tools = agent_side(self.step), self.flow.tools
        if side.prose is not None:
            return side.prose
        own = [tool.name for tool in tools] if self.step.effects is None else self.step.effects
        names = dict.fromkeys([*own, *(side.effects or ())])
        return tuple(f"{name}.{place}" for name in names if name in tools for place in tools[name].prose)

    @property
    def step_type(self) -> str:
        """The flow's own word for the kind of the step, in events; `python` in flows without kinds."""
        kind: str = self.step.metadata.get("type", "python")
        return kind

    @property
    def agent_name(self) -> str:
        """Name of the agent: the one the step names, or the general one."""
        name: str = self.step.metadata.get("agent", DISPATCH_AGENT)
        return name

    @cached_property
    def qualified(self) -> str:
        """The step's name in settings and reports."""
        return self.flow.qualified(self.step)

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that an agent may use."""
        from detent.dispatch.agent_tools import declared_tools  # only needed when agents are asked

        return declared_tools(self.step, self.flow.tools, self.allowed)

    @cached_property
    def contract(self) -> Contract:
        """The contract of an agent's answer."""
        from detent.dispatch.contract import Contract  # only needed when agents are asked

        return Contract.of(self.step, self.flow, self.tools)

    @cached_property
    def schema_hint(self) -> SchemaHint | None:
        """The contract's schema, only to decode under; the same object in every visit."""
        return None if self.contract.schema is None else SchemaHint(self.contract.schema)

    @cached_property
    def frames(self) -> IdentityMemo[str]:
        """The canonical text of `frame`, for the schema of an answer."""
        return IdentityMemo(lambda schema: canonical(self.frame(schema)), most=8)

    def frame(self, schema: Any) -> dict[str, Any]:
        """What a reply depends on besides the conversation."""
        config = self.config
        return {
            "agent": self.agent_name,
            "schema": to_plain(schema),
            "tools": [[tool.name, tool.kind, to_plain(tool.schema)] for tool in self.tools.values()],
            "config": {
                key: value
                for key in ("provider", "model_id", "temperature", "max_tokens")
                if (value := getattr(config, key)) is not None
            },
        }

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """The declared tools that an agent may use."""
        return self.resolved.config.allowed_tools

    @cached_property
    def instructions(self) -> str:
        """The part of the prompt that does not depend on the inputs."""
        return prompt.instructions(
            self.step.intent, self.config.prompt_extra, [Example(*example) for example in self.step.examples]
        )

    @cached_property
    def prompt_blocks(self) -> tuple[str, ...]:
        """The blocks of the usual prompt that do not depend on the inputs."""
        return prompt.fixed_blocks(self.contract)

    @cached_property
    def prompt_fingerprint(self) -> str:
        """Changes with anything an agent is given, except the inputs."""
        tools = [[name, tool.description, to_plain(tool.schema)] for name, tool in self.tools.items()]
        return digest([self.dialect.fingerprint(self), *tools], 12)

    @cached_property
    def handler_fingerprint(self) -> str:
        """Changes with the handler's code."""
        return digest(_code(self.step.handler), 12)

    @cached_property
    def check_fingerprint(self) -> str:
        """Changes with the check that judges an agent's answer, and with the declared kinds."""
        side = agent_side(self.step)
        parts = [
            self.handler_fingerprint,
            *(_code(part) for part in (self.step.validator, side.kind)),
            repr(self.step.compare),
            side.validated,
            *([side.by_contract] if side.by_contract else ()),
        ]
        if self.reviewed:
            from detent.dispatch.planted_drafts import MUTATIONS  # only needed where people judge

            parts += ["person", MUTATIONS]
        return digest(parts, 12)

    @cached_property
    def sampling_fingerprint(self) -> str:
        """Changes with how the model is asked: provider, temperature, length."""
        config = self.config
        return digest([config.provider, config.temperature, config.max_tokens], 12)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The facts in every event about this step, in a run without a parent."""
        metadata = self.step.metadata
        return {
            "flow": metadata.get("flow", self.flow.name),
            "definition": metadata.get("definition", self.flow.machine.name),
            "step_name": self.step.name,
            "step_path": metadata.get("path", self.step.name),
            "action": metadata.get("action", getattr(self.step.handler, "__name__", self.step.name)),
        }


def _code(function: Any) -> str:
    """The source of a function, or its name where the source is not known."""
    if function is None:
        return ""
    function = inspect.unwrap(function)
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{type(function).__module__}.{getattr(function, '__qualname__', function)}"


def work_fingerprint(step: Step) -> str:
    """Changes with what a step does, by its handler and intent, and not with its name or its agent.

    Empty for a step without an intent: its handler may be one that many steps share.
    """
    return digest([_code(step.handler), step.intent], 12) if step.intent else ""


def facts_of(plan: Plan, run: Run) -> dict[str, Any]:
    """The facts in every event about a step of a run."""
    facts = {"run_id": run.id, **plan.facts}
    if run.config and (path := run.config.get(PATH)):
        facts["step_path"] = f"{path}/{facts['step_path']}"
    return facts


def no_agent_side(plan: Plan, run: Run, now: float) -> None:
    """Warn that a control-flow step is configured for an agent; it runs as usual."""
    logger.warning(
        "dispatch.no_intent", **facts_of(plan, run), timestamp=now,
        autonomy=(plan.config.autonomy or AutonomyLevel.OPERATOR).value, step_type=plan.step_type,
        hint=f"a {plan.step_type} step has no agent side",
    )  # fmt: skip


def point_out(plan: Plan) -> None:
    """Log the warnings about a step's configuration."""
    doubts = list(plan.resolved.warnings)
    level = plan.config.autonomy or AutonomyLevel.OPERATOR
    if (
        plan.agent
        and level > AutonomyLevel.COLLABORATOR
        and is_straight(plan.step)
        and not plan.contract.output
    ):
        doubts.append(
            ("W007", "the step declares no output, so an agent may set any key; give it an output_schema")
        )
    for code, hint in doubts:
        logger.warning("config.doubtful", flow=plan.flow.name, step_name=plan.step.name, code=code, hint=hint)


def check_price(plan: Plan, executor: StepExecutor) -> None:
    """Raise when money is limited and the model's price is unknown."""
    model_id = plan.config.model_id
    priced = getattr(executor, "priced", None)
    if priced is None or not priced(model_id):
        name = f"model '{model_id}'" if model_id else "the default model"
        raise ConfigurationError(
            f"Step '{plan.qualified}' has a money budget, but the price of {name} is not known. "
            f"Give it under `prices` in the settings, or leave out cost_usd."
        )
