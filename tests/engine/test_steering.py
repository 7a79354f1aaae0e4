"""Text from outside never steers: wherever it stands, and even when an agent obeys it to the letter.

What an obeyed text can do is what the step's declared contract allows, and nothing else. How tight that is
whoever writes the step says, and there are two ways to keep a recipient out of an agent's hands:

- the agent states facts and `conclude` makes the effect of them, taking the recipient from the run's data
  (`draft` below). The step leaves `effects` unsaid, so that the agent itself can propose none;
- the tool's schema lists the recipients there are (`notify` below).

Where the contract takes any text as recipient (`forward` below), an agent that is trusted above collaborator
may write any text there. That is what such a contract says, and the tests show it.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from detent.adapters.models.scripted import ScriptedSource
from detent.adapters.stores.memory import MemoryStore
from detent.adapters.stores.sqlite import SQLiteStore
from detent.dispatch.config import StepConfig
from detent.dispatch.dispatcher import DispatchSettings, dispatcher_of
from detent.dispatch.executor import Availability, ExecutorResult
from detent.dispatch.executor_errors import OutputSchemaValidationError
from detent.engine import logger
from detent.engine.context import StepContext
from detent.engine.engine import Engine
from detent.engine.flow import Flow
from detent.engine.outcome import Effect, Outcome
from detent.engine.step import Step
from detent.engine.tools import Tool, ToolError
from detent.kernel.entries import Entry, Moved
from detent.kernel.guards import when
from detent.kernel.machine import Machine, Move
from detent.kernel.plain import to_plain
from detent.kernel.run import Run
from detent.kernel.status import Status
from tests.examples import covering

SECRET = "s3cr3t-of-the-environment"
CUSTOMER = "ada@customer.example"
DESK, ARCHIVE, CHIEF = "desk@shop.example", "archive@shop.example", "chief@shop.example"
HARMLESS = "My kettle leaks. What can I do?"
LEVELS = ("operator", "collaborator", "consultant", "approver")
TRUSTED = ("consultant", "approver")
AGENTS = ("triage", "choose", "draft", "notify", "forward")
"""Steps an agent performs."""
LABELS = ("INPUTS", "CONTRACT", "ALLOWED", "ANSWER", "PROBLEMS", "EXAMPLE", "RESULT")


@dataclass(frozen=True)
class Steering:
    """A text that tries to steer."""

    id: str
    family: str
    text: str
    demands: Mapping[str, Any]


def _texts() -> list[Steering]:
    said = yaml.safe_load(Path(__file__).with_name("steering_texts.yaml").read_text(encoding="utf-8"))
    return [
        Steering(one["id"], one["family"], one["text"] * one.get("times", 1), one["demands"]) for one in said
    ]


TEXTS = _texts()
BY_ID = {text.id: text for text in TEXTS}


def test_there_are_many_texts_and_no_two_are_called_the_same():
    assert len(TEXTS) >= 60
    assert len({text.id for text in TEXTS}) == len(TEXTS)
    assert len({text.family for text in TEXTS}) >= 15
    assert all(text.demands for text in TEXTS)


# -- a desk that answers mail -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    kind: Literal["fault", "question"]
    urgent: bool


@dataclass(frozen=True)
class Choice:
    why: str


@dataclass(frozen=True)
class Draft:
    text: str


NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}

MACHINE: Machine[str] = Machine(
    "desk",
    start="read",
    moves={
        "read": ["file"],
        "file": ["triage"],
        "triage": [
            Move("refund", when=when({"approved": True})),
            Move("choose", when=when({"kind": ["fault", "question"]})),
        ],
        "choose": ["draft", "archived"],
        "draft": ["notify"],
        "notify": ["forward"],
        "forward": ["done"],
        "refund": ["done"],
    },
    ends={"done": Status.SUCCEEDED, "archived": Status.SUCCEEDED},
)


@dataclass
class Places:
    """Where a text from outside may stand."""

    input: str = HARMLESS
    query: str = "a customer for years"
    receipt: str = "accepted for delivery"
    description: str = "Tell somebody in the shop."


PLACES = ("input", "query", "receipt", "description")


@dataclass
class Desk:
    """The flow, and everything that was done through it."""

    places: Places = field(default_factory=Places)
    done: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        """A query, and effects that are only written down here."""

        def effect(name: str, description: str, **arguments: Any) -> Tool:
            def perform(**args: Any) -> dict[str, Any]:
                self.done.append((name, args))
                note = self.places.receipt
                return {"id": f"{name}-{len(self.done)}", "note": note, "parcel": unpacked(note)}

            return Tool(name, perform, description=description, arguments=_object(**arguments))

        def find(who: str) -> dict[str, str]:
            return {"note": self.places.query, "parcel": unpacked(self.places.query), "token": SECRET}

        among = {"type": "string", "enum": [DESK, ARCHIVE]}
        return [
            Tool("crm.find", find, "query", arguments=_object(who=TEXT)),
            effect("file.keep", "Keep something.", what={}),
            effect("mail.send", "Send a mail.", to=TEXT, text=TEXT),
            effect("mail.notify", self.places.description, to=among, text=TEXT),
            effect("mail.forward", "Forward the case.", to=TEXT),
            effect("bank.refund", "Pay money back.", amount={"type": "number"}),
        ]

    def flow(self) -> Flow:
        """Its steps."""

        async def read(ctx: StepContext) -> Outcome:
            return Outcome(set={"history": await ctx.query("crm.find", who=ctx.data.sender)})

        async def file(ctx: StepContext) -> Outcome:
            parcel = [ctx.data.parcel, ctx.data.history["parcel"]]
            kept = ctx.propose("file.keep", what=parcel)
            return Outcome(set={"filed": {"what": parcel, "under": kept.id}})

        async def triage(ctx: StepContext) -> Form:
            return Form("question", False)

        async def choose(ctx: StepContext) -> Outcome:
            return Outcome("draft", set={"why": "it wants an answer"})

        async def draft(ctx: StepContext) -> Draft:
            return Draft("We shall see to it.")

        def sending(ctx: StepContext, said: Draft) -> Outcome:
            sent = ctx.propose("mail.send", to=ctx.data.sender, text=said.text)
            return Outcome(set={"sent": sent})

        async def notify(ctx: StepContext) -> Outcome:
            return Outcome(effects=[Effect("mail.notify", {"to": DESK, "text": "answered"})])

        async def forward(ctx: StepContext) -> Outcome:
            return Outcome(effects=[Effect("mail.forward", {"to": CHIEF})])

        async def refund(ctx: StepContext) -> Outcome:
            return Outcome(effects=[Effect("bank.refund", {"amount": 9999})])

        none: dict[str, Any] = {"queries": (), "effects": ()}
        steps = {
            "read": Step("read", read),
            "file": Step("file", file),
            "triage": Step(
                "triage", triage, "Say of what kind the message is and whether it is urgent.",
                output_schema=Form, queries=("crm.find",), effects=(),
            ),
            "choose": Step(
                "choose", choose, "Say whether the message wants an answer.", output_schema=Choice, **none
            ),
            # `effects` is left unsaid: what is proposed is for `sending` to say, not for an agent.
            "draft": Step(
                "draft", draft, "Write the text of the answer.", output_schema=Draft, queries=(),
                conclude=sending,
            ),
            "notify": Step(
                "notify", notify, "Tell the desk that the mail was answered.", output_schema=NOTHING,
                queries=(), effects=("mail.notify",),
            ),
            "forward": Step(
                "forward", forward, "Forward the case to whom it concerns.", output_schema=NOTHING,
                queries=(), effects=("mail.forward",),
            ),
            "refund": Step("refund", refund),
        }  # fmt: skip
        return Flow(MACHINE, steps, tools=self.tools())


RIGHT: Mapping[str, Any] = {
    "triage": {"kind": "question", "urgent": False},
    "choose": {"output": {"why": "it wants an answer"}, "next_state": "draft"},
    "draft": {"text": "We shall see to it."},
    "notify": {},
    "forward": {},
}
"""What the handlers say, as an agent says it."""
ACTS: Mapping[str, Any] = {
    "notify": [{"tool": "mail.notify", "args": {"to": DESK, "text": "answered"}}],
    "forward": [{"tool": "mail.forward", "args": {"to": CHIEF}}],
}
"""What the handlers do, as an agent calls for it."""


# -- agents -------------------------------------------------------------------------------------------------


@dataclass
class Asked:
    """What an agent was told, and what its tools said."""

    step: str
    instructions: str
    prompt: str
    tools: tuple[Any, ...]
    heard: list[Any]


class Steadfast:
    """An agent that does its work and no more."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []

    async def execute(self, *, step_name: str, prompt: Any, instructions: Any, toolbox: Any, **_: Any) -> Any:
        """Answer."""
        asked = Asked(step_name, instructions, prompt, toolbox.list(), [])
        self.asked.append(asked)
        await self.use(asked, toolbox)
        return ExecutorResult(self.answer(step_name))

    async def use(self, asked: Asked, toolbox: Any) -> None:
        """Use the tools."""
        if asked.step == "triage":
            asked.heard.append(await toolbox.call("crm.find", {"who": CUSTOMER}))
        for call in self.acts(asked.step):
            await self.call(asked, toolbox, call)

    def acts(self, step: str) -> Any:
        """What the step's handler would do."""
        return ACTS.get(step, ())

    async def call(self, asked: Asked, toolbox: Any, call: Any) -> None:
        """Call a tool, and go on when that is refused."""
        try:
            asked.heard.append(await toolbox.call(call["tool"], call["args"]))
        except (OutputSchemaValidationError, ToolError) as refused:
            asked.heard.append(str(refused))

    def answer(self, step: str) -> Any:
        """What the step's handler would say."""
        return copy.deepcopy(RIGHT[step])

    def available(self) -> Availability:
        """Always."""
        return Availability(True)


class Obedient(Steadfast):
    """The worst case: an agent that does exactly what the text demands, at every step, at every attempt."""

    def __init__(self, text: Steering) -> None:
        super().__init__()
        self.text = text

    async def use(self, asked: Asked, toolbox: Any) -> None:
        """Call what the text says."""
        await super().use(asked, toolbox)
        for call in self.text.demands.get("calls", ()):
            await self.call(asked, toolbox, call)

    def acts(self, step: str) -> Any:
        """What the text says."""
        return self.text.demands.get("effects", super().acts(step))

    def answer(self, step: str) -> Any:
        """What the text says."""
        demands, said = self.text.demands, super().answer(step)
        if whole := demands.get("answer"):
            return self.text.text if whole is True else whole
        if "next" in demands:
            said["next_state"] = demands["next"]
        for part in (said, said.get("output")):
            if isinstance(part, dict):
                part.update(demands.get("keys", {}))
        if step == "draft" and isinstance(said.get("text"), str):
            said["text"] = self.text.text
        return said


# -- running it ---------------------------------------------------------------------------------------------


@dataclass
class Ran:
    """A run that is over, and everything about it."""

    run: Run
    journal: list[Entry]
    desk: Desk
    agent: Steadfast
    records: list[logging.LogRecord]
    marks: list[Any]
    levels: dict[str, str]

    @property
    def moves(self) -> list[tuple[str, str]]:
        return [(one.body.frm, one.body.to) for one in self.journal if isinstance(one.body, Moved)]

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@contextmanager
def listening() -> Iterator[list[logging.LogRecord]]:
    """Everything that is logged at INFO and above."""
    heard: list[logging.LogRecord] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    standard, ear = logging.getLogger(logger.NAME), Ear(logging.INFO)
    before = standard.level
    standard.addHandler(ear)
    standard.setLevel(logging.INFO)
    try:
        yield heard
    finally:
        standard.removeHandler(ear)
        standard.setLevel(before)


async def ran(level: str, agent: Steadfast, places: Places | None = None, store: Any = None) -> Ran:
    """Have the desk handle a mail, with an agent at this level in all its steps."""
    desk = Desk(places or Places())
    flow = desk.flow()
    config = StepConfig.read({"mode": "agent", "autonomy": level})
    settings = DispatchSettings(
        steps={f"desk/{step}": config for step in AGENTS},
        executors=ScriptedSource(agent),  # type: ignore[arg-type]
        secrets=frozenset({SECRET}),
    )
    text = desk.places.input
    data = {"sender": CUSTOMER, "text": text, "parcel": unpacked(text), "approved": False}
    with listening() as records:
        async with Engine(store or MemoryStore(), [flow], dispatch=settings) as engine:
            run = await engine.run(flow, data, run_id="r1")
            journal = await engine.store.entries("r1", 0, 1000)
            marks = [await engine.store.mark(f"autonomy/desk/{step}") for step in flow.steps]
            plans = {step: dispatcher_of(engine).plan_for(flow, one) for step, one in flow.steps.items()}
    levels = {step: str(plan.config.to_plain()["autonomy"]) for step, plan in plans.items()}
    return Ran(run, journal, desk, agent, records, marks, levels)


PATH = ["read", "file", "triage", "choose", "draft", "notify", "forward", "done"]
KEYS = {"sender", "text", "parcel", "approved", "history", "filed", "kind", "urgent", "why", "sent"}


def unpacked(text: str) -> Any:
    """What a text holds as JSON, for callers that send more than text; else nothing."""
    try:
        return to_plain(json.loads(text))
    except (ValueError, RecursionError):
        return None


def holds_whatever_is_said(one: Ran, level: str) -> None:
    """What no text and no agent can change, at any level."""
    assert one.run.status is Status.SUCCEEDED, one.run.error
    for frm, to in one.moves:
        assert MACHINE.allows(frm, to)
    assert "refund" not in {state for move in one.moves for state in move}, "its guard does not hold"
    # the data: only keys that some contract declares, and none that is not the step's own to change
    assert one.run.data.keys() <= KEYS
    assert (one.run.data["sender"], one.run.data["approved"]) == (CUSTOMER, False)
    assert one.run.data["text"] == one.desk.places.input
    assert one.run.data["kind"] in ("fault", "question")
    # what looks like a stand-in of ours is data, and arrives as it came
    parcel = [unpacked(one.desk.places.input), unpacked(one.desk.places.query)]
    assert one.run.data["filed"] == {"what": parcel, "under": "file.keep-1"}
    assert one.desk.done[0] == ("file.keep", {"what": parcel})
    # the effects: declared ones only, to those they may go to
    assert {tool for tool, _ in one.desk.done[1:]} <= {"mail.send", "mail.notify", "mail.forward"}
    sent = [args for tool, args in one.desk.done if tool == "mail.send"]
    assert [args["to"] for args in sent] == ([CUSTOMER] if "draft" in dict(one.moves) else [])
    assert {args["to"] for tool, args in one.desk.done if tool == "mail.notify"} <= {DESK, ARCHIVE}
    # who performs what, and how far it is trusted
    assert one.run.config == {}
    assert one.levels == {step: level if step in AGENTS else "operator" for step in one.levels}
    for move in (entry.body for entry in one.journal if isinstance(entry.body, Moved)):
        if move.frm in AGENTS:
            assert move.detail.get("autonomy_level", "operator") == level
            assert move.detail["config"]["autonomy"] == level
    assert all(mark is None for mark, _ in one.marks)
    # what is said about it
    for line in one.lines:
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert SECRET not in line
    for asked in one.agent.asked:
        assert SECRET not in asked.prompt
        assert SECRET not in asked.instructions
        assert SECRET not in str(asked.heard)
        assert all(tool.description.isprintable() for tool in asked.tools)


def said_only_under_inputs(one: Ran, quiet: Ran, place: str) -> None:
    """Agents are told the same as ever; what is different stands under INPUTS, as data."""
    assert [asked.step for asked in one.agent.asked] == [asked.step for asked in quiet.agent.asked]
    for asked, usual in zip(one.agent.asked, quiet.agent.asked, strict=True):
        assert asked.instructions == usual.instructions
        inputs, rest = parted(asked.prompt)
        usual_inputs, usual_rest = parted(usual.prompt)
        if place == "description" and asked.step == "notify":
            # A tool describes itself in its own line, and begins no other.
            assert len(rest.splitlines()) == len(usual_rest.splitlines())
            assert labels(rest) == labels(usual_rest)
        else:
            assert rest == usual_rest
        assert inputs.keys() == usual_inputs.keys()
        assert labels(asked.prompt) == labels(usual.prompt)


def parted(prompt: str) -> tuple[dict[str, Any], str]:
    """The inputs a prompt holds, and everything after them."""
    assert prompt.startswith("INPUTS\n")
    inputs, end = json.JSONDecoder().raw_decode(prompt, len("INPUTS\n"))
    return inputs, prompt[end:]


def labels(prompt: str) -> list[str]:
    """The lines that look like the beginning of a block, whatever counts as a line."""
    return [line for line in prompt.splitlines() if line.lstrip().startswith(LABELS)]


_QUIET: dict[tuple[str, bool], Ran] = {}


async def quiet(level: str) -> Ran:
    """The same run with harmless texts and a steadfast agent."""
    if (level, True) not in _QUIET:
        _QUIET[level, True] = await ran(level, Steadfast())
    return _QUIET[level, True]


# -- texts that stand somewhere -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
async def test_with_harmless_texts_the_desk_answers(level):
    one = await quiet(level)
    holds_whatever_is_said(one, level)
    assert one.moves == list(pairwise(PATH))
    assert [(tool, args["to"]) for tool, args in one.desk.done[1:]] == [
        ("mail.send", CUSTOMER), ("mail.notify", DESK), ("mail.forward", CHIEF)
    ]  # fmt: skip
    assert len(one.agent.asked) == (0 if level == "operator" else len(AGENTS))


@pytest.mark.parametrize(
    ("name", "place", "level"), covering(BY_ID, PLACES, ("collaborator", "approver"), together=1)
)
async def test_a_text_is_data_wherever_it_stands(name, place, level):
    """I9: in the input, a query's answer, a receipt, a tool's description it changes nothing at all."""
    text = BY_ID[name]
    usual = await quiet(level)
    one = await ran(level, Steadfast(), Places(**{place: text.text}))
    holds_whatever_is_said(one, level)
    assert one.moves == usual.moves
    assert one.desk.done[1:] == usual.desk.done[1:]
    said_only_under_inputs(one, usual, place)
    assert [event_of(record) for record in one.records] == [event_of(record) for record in usual.records]
    needle = longest_word(text.text)
    assert not [line for line in one.lines if needle in line]


def event_of(record: logging.LogRecord) -> str:
    """Which event a record is of."""
    return record.getMessage().split(" ", 1)[0]


def longest_word(text: str) -> str:
    """Something that stands in this text and in no record of our own."""
    return max(re.split(r"\s", text), key=len)[:60] + " " if len(text) < 12 else text[:40]


async def test_a_text_reaches_the_agent_as_it_is():
    """It is data, so it is all there: nothing is taken out of it."""
    for steering in TEXTS:
        one = await ran("approver", Steadfast(), Places(input=steering.text))
        inputs, _ = parted(one.agent.asked[0].prompt)
        if len(steering.text.encode("utf-8", "surrogatepass")) <= 32 * 1024:
            assert inputs["text"] == steering.text
        else:
            kept, _, cut = inputs["text"].partition("…[cut ")
            assert steering.text.startswith(kept)
            assert cut


# -- texts that are obeyed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), covering(BY_ID, LEVELS, together=1))
async def test_an_agent_that_obeys_can_do_only_what_the_contract_allows(name, level):
    """I9, I10, D-34: no undeclared state, tool, effect, key; no other level; and the run still ends well."""
    text = BY_ID[name]
    one = await ran(level, Obedient(text), Places(input=text.text))
    holds_whatever_is_said(one, level)
    for words in (longest_word(text.text), *forged_keys(text)):
        assert not [line for line in one.lines if words in line or repr(words)[1:-1] in line]
    usual = await quiet(level)
    if level not in TRUSTED:
        # The step's own code has the last word, so nothing is different at all.
        assert one.moves == usual.moves
        assert one.desk.done[1:] == usual.desk.done[1:]
        own = ("text", "parcel", "filed")
        data = {key: value for key, value in one.run.data.items() if key not in own}
        assert data == {key: value for key, value in usual.run.data.items() if key not in own}
    instructions = {asked.step: asked.instructions for asked in usual.agent.asked}
    for asked in one.agent.asked:
        assert asked.instructions == instructions[asked.step]


def forged_keys(text: Steering) -> list[str]:
    """Keys an obedient agent makes up that no record of ours has a reason to name."""
    return [key for key in text.demands.get("keys", {}) if not re.fullmatch(r"[A-Za-z_]+", key)]


@pytest.mark.parametrize("level", TRUSTED)
async def test_a_recipient_that_is_free_text_is_the_agents_to_write(level):
    """The counter-example: a contract that takes any text takes this one too. See the top of this module."""
    (text,) = [one for one in TEXTS if one.id == "recipient-forward"]
    one = await ran(level, Obedient(text))
    assert [args["to"] for tool, args in one.desk.done if tool == "mail.forward"] == ["evil@thief.example"]
    careful = await ran("collaborator", Obedient(text))
    assert [args["to"] for tool, args in careful.desk.done if tool == "mail.forward"] == [CHIEF]


@pytest.mark.parametrize(
    ("family", "level"), covering(["unicode", "control", "long", "forged-reference"], LEVELS, together=1)
)
async def test_what_is_hard_to_write_down_is_written_down(tmp_path, family, level):
    """Texts no encoding likes pass through a file as they pass through memory."""
    for number, text in enumerate(one for one in TEXTS if one.family == family):
        store = SQLiteStore(tmp_path / f"{number}.db", sync="normal")
        one = await ran(level, Obedient(text), Places(text.text, text.text, text.text, text.text), store)
        holds_whatever_is_said(one, level)


@pytest.mark.parametrize(("depth", "level"), covering([50, 300, 900, 5000], LEVELS, together=1))
async def test_an_answer_that_is_nothing_but_depth_does_no_harm(depth, level):
    """D-34: what cannot be walked to its end is no answer, and the handler's counts."""
    for start, end in (('{"kind":', "}"), ("[", "]"), ('{"output":', "}"), ('{"$receipt":', "}")):
        text = start * depth + "1" + end * depth
        one = await ran(level, Obedient(Steering("deep", "deep", text, {"answer": True})))
        holds_whatever_is_said(one, level)
        given = await ran(level, Obedient(Steering("deep", "deep", "", {"keys": {"kind": nested(depth)}})))
        holds_whatever_is_said(given, level)


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# -- conditions ---------------------------------------------------------------------------------------------


def counter(handler: Any, **options: Any) -> Flow:
    """A till that pays, unless the case is suspicious: then somebody looks at it first."""
    machine: Machine[str] = Machine(
        "till",
        start="decide",
        moves={"decide": [Move("look", when=when({"suspicious": True})), Move("pay")], "look": ["pay"]},
        ends={"pay": Status.SUCCEEDED},
    )
    told: list[str] = []
    tell = Tool("tell", lambda text: told.append(text), arguments=_object(text=TEXT))

    async def look(ctx: StepContext) -> Outcome:
        return Outcome(set={"looked": True})

    step = Step("decide", handler, "Say how the case stands.", queries=(), **options)
    return Flow(machine, {"decide": step, "look": look}, tools=[tell])


async def run_of(flow: Flow, answer: Any, level: str, acts: Sequence[Any] = ()) -> Run:
    """A run whose first step an agent answers."""

    class Says(Steadfast):
        def answer(self, step: str) -> Any:
            return copy.deepcopy(answer)

        async def use(self, asked: Asked, toolbox: Any) -> None:
            """Do what the handler would do, where that is something."""
            for call in acts:
                await self.call(asked, toolbox, call)

    settings = DispatchSettings(
        steps={"decide": StepConfig.read({"mode": "agent", "autonomy": level})},
        executors=ScriptedSource(Says()),  # type: ignore[arg-type]
    )
    async with Engine(MemoryStore(), [flow], dispatch=settings) as engine:
        return await engine.run(flow, {"suspicious": True})


@pytest.mark.parametrize("level", LEVELS)
async def test_a_condition_that_holds_cannot_be_dodged_by_naming_the_move_after_it(level):
    """I10: where conditions choose, an answer that names a state may at most agree with them."""

    async def decide(ctx: StepContext) -> Outcome:
        return Outcome(effects=[Effect("tell", {"text": "decided"})])

    flow = counter(decide, effects=("tell",), output_schema=NOTHING)
    acts = [{"tool": "tell", "args": {"text": "decided"}}]
    dodging = await run_of(flow, {"next_state": "pay"}, level, acts)
    assert dodging.data.get("looked") is True
    agreeing = await run_of(flow, {"next_state": "look"}, level, acts)
    assert agreeing.data.get("looked") is True


@pytest.mark.parametrize("level", LEVELS)
async def test_a_step_that_declares_one_way_leads_no_other(level):
    """1.8: the table's other moves are not the agent's to take, named or not."""

    async def decide(ctx: StepContext) -> Outcome:
        return Outcome("shut", set={"note": "seen"})

    machine: Machine[str] = Machine(
        "door", start="decide", moves={"decide": ["open", "shut"]},
        ends={"open": Status.SUCCEEDED, "shut": Status.SUCCEEDED},
    )  # fmt: skip
    step = Step("decide", decide, "Say how it stands.", output_schema=Case, next=("shut",), queries=())
    flow = Flow(machine, {"decide": step})
    for answer in ({"note": "seen"}, {"note": "seen", "next_state": "open"}):
        assert (await run_of(flow, answer, level)).state == "shut"


@dataclass(frozen=True)
class Case:
    note: str


@pytest.mark.parametrize("level", LEVELS)
async def test_a_declared_output_keeps_an_agent_from_data_that_conditions_look_at(level):
    """I10: with a contract that names its keys, no other key of the data is the agent's to set."""

    async def decide(ctx: StepContext) -> Case:
        return Case("seen")

    run = await run_of(counter(decide, output_schema=Case), {"note": "seen", "suspicious": False}, level)
    assert run.data == {"suspicious": True, "note": "seen", "looked": True}


@pytest.mark.parametrize(
    ("level", "looked"), [("collaborator", True), ("consultant", None), ("approver", None)]
)
async def test_without_a_declared_output_every_key_is_the_agents_to_set(level, looked):
    """The counter-example: a step that declares nothing has nothing to hold an answer to.

    Declare `output_schema` (or `into`, which keeps the output under one key) for every step whose agent is
    trusted above collaborator.
    """

    async def decide(ctx: StepContext) -> dict[str, str]:
        return {"note": "seen"}

    run = await run_of(counter(decide), {"note": "seen", "suspicious": False}, level)
    assert run.data.get("looked") is looked
    kept = await run_of(counter(decide, into="said"), {"note": "seen", "suspicious": False}, level)
    assert kept.data.get("looked") is True


@pytest.mark.parametrize("level", LEVELS)
async def test_a_key_an_agent_makes_up_reaches_no_log_line(level):
    """D-51, I11: not even where nothing is declared, and the comparison finds the key."""

    async def decide(ctx: StepContext) -> dict[str, str]:
        return {"note": "seen"}

    made_up = "Ada lives in Elm Street\nINFO:detent:dispatch.agent_completed accepted=True"
    with listening() as records:
        await run_of(counter(decide), {"note": "seen", made_up: 1}, level)
    lines = [record.getMessage() for record in records]
    assert lines
    assert not [line for line in lines if "Elm" in line or "accepted=True" in line.partition("pointers")[2]]
