"""The configuration of a step: one layer of it, and how layers are resolved.

A `StepConfig` is one layer, in which every field may be unset. `resolve` merges the layers, fills in the
defaults, and records for each field the layer it came from. Files and settings are read elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from detent.dispatch.autonomy import AutonomyLevel, ProsePolicy, StepMode, TextReview
from detent.dispatch.config_values import READERS, RETRY_PARTS, Refused, Trouble
from detent.engine import logger
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.policy import RetryPolicy

PROMPT_BYTES = 64 * 1024
"""Largest size of a prompt file."""

Where: TypeAlias = str | Callable[[str], str]
"""The source of a layer, for messages: one place for the whole layer, or the place of each field."""


class StepConfigError(ConfigurationError):
    """A step's configuration is invalid; all problems are listed at once."""

    def __init__(
        self,
        problems: Sequence[str],
        subject: str = "The step configuration",
        found: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        self.subject = subject
        self.problems = list(problems)
        self.found = tuple(found)
        """Problems of conflicting layers, each as layer, field and text."""
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "\n".join(f"  {problem}" for problem in self.problems)
            super().__init__(f"{subject} has {len(self.problems)} problems:\n{lines}")


@dataclass(frozen=True, slots=True)
class StepConfig:
    """One layer of a step's configuration. None means "not set in this layer"."""

    mode: StepMode | None = None
    autonomy: AutonomyLevel | None = None
    provider: str | None = None
    """Name of a configured executor."""
    model_id: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    """Seconds for one attempt, by agent or handler."""
    max_retries: int | None = None
    """Attempts after the first one."""
    retry_policy: RetryPolicy | None = None
    """Deprecated form of `max_retries`; counts all attempts."""
    allowed_tools: tuple[str, ...] | None = None
    """The declared tools that an agent may use; empty for none."""
    prompt_suffix: str | None = None
    """Text added after the intent."""
    prompt_file: Path | None = None
    """File with the text added after the intent; absolute once read."""
    budget: Budget | None = None
    """A cap for this step inside the run's budget."""
    shadow: float | None = None
    """Share of executions that are shadowed for statistics."""
    review: TextReview | None = None
    """Who reads the agent's text for people before it is used."""
    review_within: float | None = None
    """Seconds after which the handler's text is used if nobody has reviewed the draft."""
    prose: ProsePolicy | None = None
    """Whether an approver's text for people is used unread."""
    prompt_text: str | None = None
    """Text of `prompt_file`."""
    prompt_given: str | None = field(default=None, compare=False, repr=False)
    """`prompt_file` as written in the configuration, which is the same on every machine."""

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in FIELDS}
        checked, troubles = _checked(values)
        # A resolved configuration with a shadow keeps the agent's fields; layers are checked more strictly.
        if not checked.get("shadow"):
            troubles += _not_for_handlers(checked)
        if troubles:
            raise StepConfigError([f"{name} {text}" for name, text in troubles])
        for name, value in checked.items():
            if value is not values[name]:
                object.__setattr__(self, name, value)

    @classmethod
    def read(
        cls,
        said: Mapping[str, Any],
        *,
        where: Where = "",
        folder: Path | None = None,
        read_text: Callable[[Path], str] | None = None,
    ) -> StepConfig:
        """A layer from plain values, as YAML or JSON hold them.

        `where` is the place named in messages. A relative `prompt_file` is resolved against `folder` and read
        with `read_text`; without `read_text` its text stays unknown.

        Raises:
            StepConfigError: a key is unknown or a value is invalid; all problems are listed.
        """
        at = _placed(where)
        if not isinstance(said, Mapping):
            raise StepConfigError([f"{at('')}a step is configured by named values, such as `mode: agent`."])
        troubles: list[Trouble] = []
        values: dict[str, Any] = {}
        for key, value in said.items():
            name = str(key)
            if name not in FIELDS and name not in ("model", *SYNONYMS):
                hint = nearest(name, FIELDS) or f" Known here: {', '.join(FIELDS)}."
                troubles.append((name, f"is not a key of a step's configuration.{hint}"))
            elif value is not None:
                values[name] = value
        deprecated: list[tuple[str, str]] = []
        if "model" in values:
            deprecated.append(("model", "model_id"))
            if "model_id" in values:
                troubles.append(("model", "is the old name of model_id; say one of them."))
            values.setdefault("model_id", values.pop("model"))
        troubles += _in_our_words(values)
        if "retry_policy" in values:
            deprecated.append(("retry_policy", "max_retries"))
        prompt_file = values.get("prompt_file")
        if isinstance(prompt_file, str) and prompt_file and folder is not None:
            values["prompt_file"] = folder / Path(prompt_file).expanduser()
        checked, more_troubles = _checked(values)
        troubles += more_troubles + _not_for_handlers(checked)
        path = checked.get("prompt_file")
        if path is not None and read_text is not None:
            try:
                checked["prompt_text"] = text = read_text(path)
            except OSError as error:
                troubles.append(("prompt_file", f"{path} cannot be read: {error.strerror or error}."))
            except UnicodeDecodeError as error:
                troubles.append(("prompt_file", f"{path} is not UTF-8 text (byte {error.start})."))
            else:
                if (size := len(text.encode())) > PROMPT_BYTES:
                    troubles.append(
                        ("prompt_file", f"{path} has {size} bytes; it may have {PROMPT_BYTES} at most.")
                    )
        if troubles:
            raise StepConfigError([f"{at(name)}{name} {text}" for name, text in troubles])
        for old, new in deprecated:
            logger.warning("config.deprecated", key=old, use=new, where=at(old).removesuffix(": ") or None)
            warnings.warn(f"{at(old)}'{old}' is deprecated; say '{new}'.", DeprecationWarning, stacklevel=2)
        if prompt_file is not None:
            checked["prompt_given"] = Path(prompt_file).as_posix()
        return cls(**checked)

    def to_plain(self) -> dict[str, Any]:
        """The fields that are set, as plain values; a prompt file by name, without its text."""
        plain: dict[str, Any] = {}
        for name in FIELDS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, Enum):
                value = value.value
            elif isinstance(value, tuple):
                value = list(value)
            elif isinstance(value, Path):
                value = self.prompt_given or value.as_posix()
            elif isinstance(value, Budget):
                value = value.to_plain()
            elif isinstance(value, RetryPolicy):
                value = {part: getattr(value, part) for part in RETRY_PARTS}
            plain[name] = value
        return plain

    @property
    def prompt_extra(self) -> str | None:
        """The text added after the intent, from `prompt_suffix` or `prompt_file`."""
        return self.prompt_suffix if self.prompt_suffix is not None else self.prompt_text

    @property
    def said(self) -> tuple[str, ...]:
        """Names of the fields set in this layer."""
        return tuple(name for name in FIELDS if getattr(self, name) is not None)


FIELDS = tuple(part.name for part in fields(StepConfig) if part.name not in ("prompt_text", "prompt_given"))
"""The keys of a step's configuration."""
SYNONYMS = ("timeout_s", "max_attempts")
"""Synonyms of `timeout` and, counting the first attempt, `max_retries`."""
EVERYWHERE = ("provider", "model_id", "temperature", "max_tokens")
"""Fields that all four layers supply; the others come from the first two."""
_THESE = ", ".join(EVERYWHERE)
AGENT_ONLY = (
    "autonomy", "allowed_tools", "prompt_suffix", "prompt_file", "review", "review_within", "prose"
)  # fmt: skip
"""Fields that apply to agents only; `autonomy` only above operator."""
EXCLUSIVE = (("max_retries", "retry_policy"), ("prompt_suffix", "prompt_file"), ("review", "prose"))
"""Pairs of which a layer may set one; setting it hides both fields of lower layers."""


# -- checking one layer -------------------------------------------------------------------------------------


def _placed(where: Where) -> Callable[[str], str]:
    """A function that gives the prefix of messages about a field."""

    def at(name: str) -> str:
        place = where(name) if callable(where) else where
        return f"{place}: " if place else ""

    return at


def _in_our_words(values: dict[str, Any]) -> list[Trouble]:
    """Replace synonyms by the fields they stand for; return the problems."""
    troubles: list[Trouble] = []
    if "timeout_s" in values:
        if "timeout" in values:
            troubles.append(("timeout_s", "and timeout are two ways of saying the same; say one of them."))
        values.setdefault("timeout", values.pop("timeout_s"))
    attempts = values.pop("max_attempts", None)
    if attempts is not None:
        if "max_retries" in values or "retry_policy" in values:
            troubles.append(("max_attempts", "counts the first try, max_retries those after it; say one."))
        elif not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            troubles.append(("max_attempts", "takes a whole number of 1 or more: the first try counts."))
        else:
            values["max_retries"] = attempts - 1
    return troubles


def _checked(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Trouble]]:
    """The valid values, each in its own type, and the problems of the others."""
    checked: dict[str, Any] = {}
    troubles: list[Trouble] = []
    for name, value in values.items():
        if value is None:
            continue
        try:
            checked[name] = READERS[name](value)
        except Refused as refused:
            troubles += [(f"{name}.{part}" if part else name, text) for part, text in refused.troubles]
    for first, second in EXCLUSIVE:
        if values.get(first) is not None and values.get(second) is not None:
            both = "decide who reads the text" if first == "review" else "are two ways of saying the same"
            troubles.append((first, f"and {second} {both}; say one of them."))
    return checked, troubles


def _not_for_handlers(values: Mapping[str, Any]) -> list[Trouble]:
    """Problems of agent-only fields set together with `mode: deterministic`."""
    if values.get("mode") is not StepMode.DETERMINISTIC:
        return []
    return [
        (name, f"{_above(name)}is for agents, but the same place says mode: deterministic.")
        for name in AGENT_ONLY
        if _agent_only(name, values.get(name))
    ]


def _agent_only(name: str, value: Any) -> bool:
    """Whether this value of a field applies to agents only."""
    if value is None or name not in AGENT_ONLY:
        return False
    return name != "autonomy" or value is not AutonomyLevel.OPERATOR


def _above(name: str) -> str:
    return "above operator " if name == "autonomy" else ""


UNSAID = StepConfig()
"""A layer with no field set."""


# -- resolving layers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resolved:
    """A step's configuration, resolved from all layers."""

    config: StepConfig
    """Complete: every field that has a default is filled."""
    sources: Mapping[str, str]
    """For each field the layer it came from: `run`, `inline`, `steps.<key>`, `hint`, `agents.<name>`,
    `model`, `default`, `forced`."""
    dropped: tuple[str, ...] = ()
    """Agent-only fields of lower layers, dropped because a higher layer sets deterministic."""
    warnings: tuple[tuple[str, str], ...] = ()
    """Codes and messages: W002, an agent that is never asked; W006, a level above `max_autonomy`."""
    forced: bool = False
    """Agents are switched off for the whole run."""

    @property
    def retry(self) -> RetryPolicy:
        """How often the step is tried."""
        if self.config.retry_policy is not None:
            return self.config.retry_policy
        return RetryPolicy.retries(self.config.max_retries or 0)

    def to_plain(self) -> dict[str, Any]:
        """As the journal keeps it; `sources` leaves out defaults."""
        plain: dict[str, Any] = {
            "config": self.config.to_plain(),
            "sources": {name: layer for name, layer in self.sources.items() if layer != "default"},
        }
        if self.dropped:
            plain["dropped"] = list(self.dropped)
        if self.forced:
            plain["forced"] = True
        return plain


_Problem: TypeAlias = tuple[str, str, str]
"""A layer, a field, and the problem with it."""


class _Layer(NamedTuple):
    name: str
    config: StepConfig


HINT = "hint"
"""Name of the layer with the suggestions of a step's definition."""
_FORCED = StepConfig(mode=StepMode.DETERMINISTIC, shadow=0.0)
_NO_STEPS: Mapping[str, StepConfig] = MappingProxyType({})
AGENT_TIMEOUT = 300.0
DEFAULT_MAX_TOKENS = 8192
"""Tokens of an answer where nothing is configured: as many as nearly every hosted model accepts."""
_DEFAULTS: Mapping[StepMode, StepConfig] = {
    StepMode.DETERMINISTIC: StepConfig(
        mode=StepMode.DETERMINISTIC, autonomy=AutonomyLevel.OPERATOR, temperature=0.0,
        max_tokens=DEFAULT_MAX_TOKENS, max_retries=0, shadow=0.0,
    ),
    StepMode.AGENT: StepConfig(
        mode=StepMode.AGENT, autonomy=AutonomyLevel.COLLABORATOR, temperature=0.0,
        max_tokens=DEFAULT_MAX_TOKENS, timeout=AGENT_TIMEOUT, max_retries=2, shadow=0.0,
    ),
}  # fmt: skip


def resolve(
    name: str,
    *,
    flow: str,
    inline: StepConfig = UNSAID,
    steps: Mapping[str, StepConfig] = _NO_STEPS,
    hint: StepConfig = UNSAID,
    agent: StepConfig | None = None,
    agent_name: str = "dispatch",
    model: StepConfig = UNSAID,
    forced: bool = False,
    max_autonomy: AutonomyLevel | None = None,
    tools: Collection[str] | None = (),
    natural: StepMode = StepMode.DETERMINISTIC,
    run: StepConfig = UNSAID,
) -> Resolved:
    """Resolve a step's configuration from its layers.

    `run` is the configuration a run was started with, the strongest layer. `hint` is the step's suggestion,
    weaker than `steps`; its agent-only fields apply once another layer gives the step to an agent. `tools`
    are the tools that the step declares, and `allowed_tools` may name no others; None when they are unknown.
    `natural` is the mode when no layer sets one.

    Raises:
        StepConfigError: the layers conflict; all problems are listed.
    """
    upper = [_Layer("run", run), _Layer("inline", inline)]
    for key in (f"{flow}/{name}", name):
        if key in steps:
            upper.append(_Layer(f"steps.{key}", steps[key]))
    upper.append(_Layer(HINT, hint))
    lower = [_Layer(f"agents.{agent_name}", agent or UNSAID), _Layer("model", model)]
    problems = [problem for layer in upper for problem in _layer(layer)]
    problems += [(layer.name, *trouble) for layer in lower for trouble in out_of_place(layer.config)]
    if forced:
        upper.insert(0, _Layer("forced", _FORCED))
    chosen, sources = _chosen(upper, lower)
    set_by = next((i for i, layer in enumerate(upper) if layer.config.mode is not None), None)
    mode: StepMode = chosen.get("mode") or natural
    dropped: list[str] = []
    if mode is StepMode.DETERMINISTIC:
        dropped = _drop(upper, set_by, chosen, sources)
        problems += _idle(upper, chosen, sources)
    if tools is not None:
        problems += _undeclared(chosen.get("allowed_tools"), sources, tools)
    if problems:
        lines = [f"{layer}: {field} {text}" for layer, field, text in problems]
        raise StepConfigError(lines, f"The configuration of step '{flow}/{name}'", problems)
    _fill(chosen, _DEFAULTS[mode])
    config = StepConfig(**chosen)
    return Resolved(
        config, MappingProxyType(sources), tuple(dropped), _warnings(config, max_autonomy), forced
    )


def _layer(layer: _Layer) -> list[_Problem]:
    """Problems of a layer made in code; `StepConfig.read` has already checked the others."""
    values = {name: value for name in AGENT_ONLY if (value := getattr(layer.config, name)) is not None}
    values["mode"] = layer.config.mode
    return [(layer.name, name, text) for name, text in _not_for_handlers(values)]


def out_of_place(config: StepConfig) -> list[Trouble]:
    """Fields that agents and model defaults cannot set: they choose the model only."""
    return [
        (name, f"belongs to a step, in its own configuration or under `steps`; here stand {_THESE}.")
        for name in config.said
        if name not in EVERYWHERE
    ]


def _chosen(upper: list[_Layer], lower: list[_Layer]) -> tuple[dict[str, Any], dict[str, str]]:
    """For each field the value of the strongest layer that sets it, and that layer's name."""
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = dict.fromkeys(FIELDS, "default")
    hidden: dict[str, str] = {}
    for first, second in EXCLUSIVE:
        hidden[first], hidden[second] = second, first
    for layer in (*upper, *lower):
        for name in layer.config.said:
            if name in chosen or hidden.get(name) in chosen:
                continue
            chosen[name] = getattr(layer.config, name)
            sources[name] = layer.name
            if name == "prompt_file":
                chosen["prompt_text"] = layer.config.prompt_text
                chosen["prompt_given"] = layer.config.prompt_given
    return chosen, sources


def _drop(
    upper: list[_Layer], set_by: int | None, chosen: dict[str, Any], sources: dict[str, str]
) -> list[str]:
    """Remove agent-only fields set below the layer that makes the step deterministic."""
    below = {HINT} if set_by is None else {layer.name for layer in upper[set_by + 1 :]}
    dropped = [name for name in AGENT_ONLY if sources[name] in below and _agent_only(name, chosen[name])]
    for name in dropped:
        del chosen[name]
        sources[name] = "default"
        if name == "prompt_file":
            del chosen["prompt_text"], chosen["prompt_given"]
    return dropped


def _idle(upper: list[_Layer], chosen: Mapping[str, Any], sources: Mapping[str, str]) -> list[_Problem]:
    """Problems of agent-only fields in a step that no agent performs or shadows."""
    if chosen.get("shadow"):
        return []
    at_fault = {
        layer.name for layer in upper if layer.config.mode is StepMode.DETERMINISTIC
    }  # reported already
    why = f"{sources['mode']} says mode: deterministic" if "mode" in chosen else "no layer says mode: agent"
    return [
        (sources[name], name, f"{_above(name)}is for agents, but {why} (and shadow is off).")
        for name in AGENT_ONLY
        if _agent_only(name, chosen.get(name)) and sources[name] not in at_fault
    ]


def _undeclared(
    allowed: tuple[str, ...] | None, sources: Mapping[str, str], tools: Collection[str]
) -> list[_Problem]:
    """Problems of allowed tools that the step does not declare."""
    names = ", ".join(sorted(tools)) or "none"
    return [
        (
            sources["allowed_tools"],
            "allowed_tools",
            f"names '{tool}', which the step does not declare.{nearest(tool, tools)} It declares: {names}.",
        )
        for tool in allowed or ()
        if tool not in tools
    ]


def _fill(chosen: dict[str, Any], defaults: StepConfig) -> None:
    """Fill in defaults for unset fields."""
    for name in defaults.said:
        if name == "max_retries" and "retry_policy" in chosen:
            continue
        chosen.setdefault(name, getattr(defaults, name))


def _warnings(config: StepConfig, max_autonomy: AutonomyLevel | None) -> tuple[tuple[str, str], ...]:
    messages: list[tuple[str, str]] = []
    if config.mode is not StepMode.AGENT or config.autonomy is None:
        return ()
    if config.autonomy is AutonomyLevel.OPERATOR:
        messages.append((
            "W002",
            "autonomy operator requires mode deterministic: the agent is never asked and the handler runs. "
            "Raise autonomy to collaborator, or leave out mode: agent.",
        ))  # fmt: skip
    if max_autonomy is not None and config.autonomy > max_autonomy:
        messages.append((
            "W006",
            f"autonomy {config.autonomy.value} is above what the step advises: "
            f"{max_autonomy.value} at most.",
        ))  # fmt: skip
    return tuple(messages)
