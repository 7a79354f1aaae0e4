"""What is measured: the workloads, who takes part in each, who cannot and why, and the targets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.protocol import Param

Medians = Mapping[str, Mapping[str, float]]
"""The median figures of the contestants that finished, by contestant."""

OURS = "detent"


@dataclass(frozen=True)
class Contestant:
    """Someone who runs a workload: a module, and which environment it runs in."""

    name: str
    module: str
    peer: bool = True
    extra: Param = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A figure beyond the seconds that a workload reports."""

    key: str
    heading: str
    form: str = "{:.2f}"
    scale: float = 1.0
    over: str | None = None
    """The contestant whose figure is subtracted."""

    def cell(self, name: str, medians: Medians) -> str:
        """Show a contestant's figure, or a dash where there is none."""
        values = [medians.get(each, {}).get(self.key) for each in (name, self.over) if each is not None]
        figures = [value for value in values if value is not None]
        if len(figures) < len(values) or name == self.over:
            return "-"
        return self.form.format((figures[0] - sum(figures[1:])) * self.scale)


@dataclass(frozen=True)
class Target:
    """A stated aim in words, and the check that returns whether it is met and the measured value."""

    words: str
    check: Callable[[Medians], tuple[bool, str]]


@dataclass(frozen=True)
class Workload:
    """One table of the report."""

    group: str
    name: str
    title: str
    script: str
    full: Param
    quick: Param
    contestants: tuple[Contestant, ...]
    targets: tuple[Target, ...] = ()
    absent: tuple[str, ...] = ()
    floor: str | None = None
    rate: str | None = "steps/s"
    columns: tuple[Column, ...] = ()
    full_only: bool = False
    repeats: int | None = None


class Undecided(Exception):
    """A target that cannot be judged because someone it names did not finish."""


def figure(medians: Medians, name: str, key: str = "seconds") -> float:
    """Return a contestant's median figure, or say that the target cannot be judged."""
    if name not in medians:
        raise Undecided(f"{name} gave no figure")
    return medians[name][key]


def at_most(factor: float, other: str) -> Callable[[Medians], tuple[bool, str]]:
    """Detent's time is at most a factor times another's."""

    def check(medians: Medians) -> tuple[bool, str]:
        ratio = figure(medians, OURS) / max(figure(medians, other), 1e-9)
        return ratio <= factor, f"{ratio:.2f} times {other}"

    return check


def within(
    limit: float, key: str = "seconds", unit: str = " s", name: str = OURS
) -> Callable[[Medians], tuple[bool, str]]:
    """Detent's figure, in one of its ways, is at most a limit."""

    def check(medians: Medians) -> tuple[bool, str]:
        value = figure(medians, name, key)
        return value <= limit, f"{value:.3g}{unit}"

    return check


def within_over(
    limit: float, key: str, unit: str, name: str, floor: str
) -> Callable[[Medians], tuple[bool, str]]:
    """Someone's figure, less that of a floor, is at most a limit."""

    def check(medians: Medians) -> tuple[bool, str]:
        more = figure(medians, name, key) - figure(medians, floor, key)
        return more <= limit, f"{more:.3g}{unit}"

    return check


def faster_than_all(
    factor: float, expected: tuple[str, ...], ours: str = OURS
) -> Callable[[Medians], tuple[bool, str]]:
    """Detent is more than a factor faster than the fastest of all the peers, who must all have finished."""

    def check(medians: Medians) -> tuple[bool, str]:
        own = figure(medians, ours)
        times: dict[str, float] = {name: figure(medians, name) for name in expected}
        best = min(times, key=times.__getitem__)
        ratio = times[best] / own
        met = ratio >= factor if factor > 1 else ratio > 1
        return met, f"{ratio:.2f} times as fast as {best}, the fastest peer"

    return check


def over(limit: float, name: str, floor: str) -> Callable[[Medians], tuple[bool, str]]:
    """Someone takes at most a share longer than the floor."""

    def check(medians: Medians) -> tuple[bool, str]:
        share = figure(medians, name) / max(figure(medians, floor), 1e-9) - 1
        return share < limit, f"{share * 100:.1f} %"

    return check


def microseconds(limit: float, name: str, floor: str | None = None) -> Callable[[Medians], tuple[bool, str]]:
    """Someone takes fewer microseconds a step than a limit, those of a floor left out."""

    def check(medians: Medians) -> tuple[bool, str]:
        own = figure(medians, name, "us") - (figure(medians, floor, "us") if floor else 0.0)
        return own < limit, f"{own:.1f} µs"

    return check


def peer(name: str, module: str, **extra: Any) -> Contestant:
    """Name a contestant from the peers' environment."""
    return Contestant(name, f"benchmarks.peers.{module}", extra=extra)


DETENT = Contestant(OURS, "benchmarks.ours", peer=False)
PLAIN = Contestant("detent, plain functions", "benchmarks.ours", peer=False, extra={"plain": True})
SQLITE = Contestant("raw sqlite", "benchmarks.raw", peer=False)
SLEEP = Contestant("ideal sleep", "benchmarks.raw", peer=False)

LIBRARIES = (peer("transitions", "transitions"), peer("python-statemachine", "statemachine"))
ENGINES = (
    peer("pydantic-graph", "pydantic_graph"),
    peer("langgraph", "langgraph"),
    peer("langgraph + memory saver", "langgraph", saver=True),
    peer("burr", "burr"),
    peer("burr + memory saver", "burr", saver=True),
)
DURABLE = (peer("langgraph", "langgraph"), peer("burr", "burr"), peer("dbos", "dbos"))
GROWERS = (
    peer("langgraph", "langgraph"),
    peer("langgraph + delta", "langgraph", delta=True),
    peer("burr", "burr"),
    peer("dbos", "dbos"),
)

NO_STORE = (
    "pydantic-graph: keeps no store of its own, so nothing is committed",
    "python-statemachine, transitions: bare objects without a store",
)
IN_OWN_HOUSE = "the peers: the question is about Detent's own promises"


ANSWERS = tuple(
    Column(key, f"{heading} s", "{:.4f}")
    for key, heading in (
        ("list", "list"),
        ("last_page", "last page"),
        ("show", "show"),
        ("metrics", "metrics"),
    )
)


def dispatch(name: str, **extra: Any) -> Contestant:
    """Name a way to have Detent perform steps, or a part of doing so."""
    return Contestant(name, "benchmarks.dispatch", peer=False, extra=extra)


RAW_CALL = Contestant("raw call", "benchmarks.raw", peer=False)
RAW_RECORDED = Contestant("raw call, one row", "benchmarks.raw", peer=False, extra={"recorded": True})
BY_CODE = (
    dispatch("bare handler", part="handler"),
    dispatch("dispatcher alone", part="dispatcher"),
    dispatch("dispatcher alone, events told", part="dispatcher", events="written"),
    dispatch(OURS),
    dispatch("detent, events told", events="written"),
    dispatch("detent, structlog quiet", events="structlog"),
)
BY_AGENT = (
    dispatch(OURS),
    dispatch("detent, collaborator", level="collaborator"),
    dispatch("detent in memory", store="memory"),
    dispatch("detent in memory, collaborator", store="memory", level="collaborator"),
)
AGENTS = (
    peer("burr", "burr"),
    peer("langgraph", "langgraph"),
    peer("pydantic-ai, not recorded", "pydantic_ai"),
    peer("pydantic-ai + dbos", "pydantic_ai", durable=True),
)

NO_AGENTS = (
    "pydantic-ai by itself, as a recorder: it keeps no store; listed for what asking and validating cost",
    "dbos by itself: it asks no agents; it records what pydantic-ai asks",
    "pydantic-graph, python-statemachine, transitions: neither ask agents nor keep a store",
)


def acting(name: str, **extra: Any) -> Contestant:
    """Name a way to perform the step with a query and an effect."""
    return Contestant(name, "benchmarks.agent", peer=False, extra=extra)


BARE_LOOP = "bare loop, two rows"
BY_MODEL = (acting(OURS, level="consultant"), acting("detent, collaborator", level="collaborator"))


def mailbox(name: str, way: str) -> Contestant:
    """Name a way to process mails."""
    return Contestant(name, "benchmarks.warranty", peer=False, extra={"way": way})


STEPWISE = (mailbox("bare loop", "bare"), mailbox("detent, legacy mode", "legacy"), mailbox(OURS, "step"))


def written(name: str, way: str) -> Contestant:
    """Name a way to write the same workflow."""
    return Contestant(name, "benchmarks.workflow", peer=False, extra={"way": way})


def workers(number: int) -> Contestant:
    """Name so many workers on one PostgreSQL server."""
    name = f"{number} worker{'s' if number > 1 else ''}"
    return Contestant(name, "benchmarks.serve", peer=False, extra={"workers": number})


SERVING = (workers(1), workers(2), workers(4))


def keeps_up(name: str) -> Callable[[Medians], tuple[bool, str]]:
    """More workers take no longer than one."""

    def check(medians: Medians) -> tuple[bool, str]:
        ratio = figure(medians, SERVING[0].name) / figure(medians, name)
        return ratio >= 1, f"{ratio:.2f} times as fast as one"

    return check


KEEPING_UP = tuple(Target(f"{who.name} faster than one", keeps_up(who.name)) for who in SERVING[1:])


IN_PYTHON = written("flow in Python", "plain")
FROM_FILE = written(OURS, "file")


def share_of(limit: float, key: str, floor: str) -> Callable[[Medians], tuple[bool, str]]:
    """What a mail costs Detent more than a floor is less than a limit; told as a share of it."""

    def check(medians: Medians) -> tuple[bool, str]:
        more = figure(medians, OURS, key) - figure(medians, floor, key)
        ratio = figure(medians, OURS, key) / max(figure(medians, floor, key), 1e-9)
        return (
            more / limit < 1,
            f"{more / limit:.4f} of {limit:.0f} ms ({more:.2f} ms; {ratio:.2f} times {floor})",
        )

    return check


def names(contestants: tuple[Contestant, ...]) -> tuple[str, ...]:
    """Return the names of contestants."""
    return tuple(contestant.name for contestant in contestants)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "object",
        "object",
        "validated, recorded transitions on a 4-state cycle with the bare object",
        "object",
        {"steps": 5000},
        {"steps": 1000},
        (DETENT, *LIBRARIES),
        (Target("faster than every peer", faster_than_all(1, names(LIBRARIES))),),
        ("langgraph, burr, dbos, pydantic-graph: engines without a bare state-machine object",),
    ),
    Workload(
        "engine",
        "engine",
        "the same steps through the whole engine in memory, one run",
        "engine",
        {"steps": 5000},
        {"steps": 1000},
        (DETENT, PLAIN, *ENGINES),
        (
            Target("at least 5 times as fast as the fastest engine", faster_than_all(5, names(ENGINES))),
            Target(
                "with plain functions at least 4 times as fast as the fastest engine",
                faster_than_all(4, names(ENGINES), PLAIN.name),
            ),
        ),
        (
            "python-statemachine, transitions: bare objects, measured under object",
            "dbos: always writes to a database, it has no engine in memory",
        ),
    ),
    Workload(
        "durable",
        "durable",
        "runs one after another, each step committed at full sync",
        "durable",
        {"runs": 100, "steps": 8},
        {"runs": 25, "steps": 8},
        (SQLITE, DETENT, *DURABLE),
        (Target("at most 1.5 times raw SQLite", at_most(1.5, "raw sqlite")),),
        NO_STORE,
        floor="raw sqlite",
    ),
    Workload(
        "fanout",
        "fanout",
        "concurrent runs of 4 steps, each awaiting 50 ms, committed at full sync (ideal 0.2 s)",
        "fanout",
        {"runs": 300, "steps": 4, "wait": 0.05},
        {"runs": 100, "steps": 4, "wait": 0.05},
        (SLEEP, DETENT, *DURABLE),
        (Target("at most 1.5 times the ideal 0.2 s", within(0.3)),),
        NO_STORE,
        floor="ideal sleep",
    ),
    Workload(
        "fanout",
        "fanout-many",
        "5,000 concurrent runs of the same work, Detent alone",
        "fanout",
        {"runs": 5000, "steps": 4, "wait": 0.05},
        {"runs": 5000, "steps": 4, "wait": 0.05},
        (SLEEP, DETENT),
        (Target("within 2 s", within(2.0)),),
        ("the peers: compared at 300 runs above",),
        floor="ideal sleep",
        full_only=True,
    ),
    Workload(
        "growth",
        "growth",
        "one run whose data grows by 200 bytes a step, each step committed at full sync",
        "growth",
        {"steps": 1000, "bytes": 200},
        {"steps": 300, "bytes": 200},
        (SQLITE, DETENT, *GROWERS),
        (
            Target("at most 1,024 bytes stored a step on top of the data", within(1024, "overhead", " B")),
            Target(
                "linear time: the last tenth takes at most 1.5 times the first",
                within(1.5, "last_over_first", " times"),
            ),
        ),
        NO_STORE,
        floor="raw sqlite",
        columns=(
            Column("bytes", "MB stored", "{:.2f}", 1e-6),
            Column("overhead", "B/step over data", "{:,.0f}"),
            Column("last_over_first", "last/first tenth"),
        ),
    ),
    Workload(
        "growth",
        "resume",
        "resuming a run with a long journal, Detent alone",
        "resume",
        {"entries": 10_000},
        {"entries": 10_000},
        (DETENT,),
        (Target("a 10,000-entry run resumes in under 100 ms", within(0.1)),),
        (IN_OWN_HOUSE,),
        rate=None,
        full_only=True,
    ),
    Workload(
        "start",
        "import",
        "importing in a fresh interpreter, best of several, less the bare interpreter",
        "start",
        {"times": 10},
        {"times": 3},
        (Contestant("pydantic", "benchmarks.start", peer=False), DETENT),
        (Target("at most twice the import of pydantic", at_most(2, "pydantic")),),
        ("the peers: pydantic sets the scale",),
        floor="pydantic",
        rate=None,
        repeats=3,
    ),
    Workload(
        "start",
        "help",
        "python -m PROGRAM --help, best of several, interpreter included",
        "help",
        {"times": 10},
        {"times": 3},
        (Contestant("bare typer", "benchmarks.start", peer=False), DETENT),
        (Target("under twice a bare typer program", at_most(2, "bare typer")),),
        ("the peers: a bare typer program sets the scale",),
        floor="bare typer",
        rate=None,
        repeats=3,
    ),
    Workload(
        "scale",
        "scale-small",
        "questions to a store of many runs, Detent alone",
        "scale",
        {"runs": 10_000, "entries": 100_000},
        {"runs": 1_000, "entries": 10_000},
        (DETENT,),
        absent=(IN_OWN_HOUSE,),
        rate=None,
        repeats=1,
        columns=ANSWERS,
    ),
    Workload(
        "scale",
        "scale-large",
        "the same questions to a store ten times as large, Detent alone",
        "scale",
        {"runs": 100_000, "entries": 1_000_000},
        {"runs": 10_000, "entries": 100_000},
        (DETENT,),
        absent=(IN_OWN_HOUSE,),
        rate=None,
        repeats=1,
        columns=ANSWERS,
    ),
    Workload(
        "dispatch",
        "dispatch-code",
        "steps performed by their handlers through the whole engine in memory, and what of it is dispatch",
        "code",
        {"steps": 5000},
        {"steps": 1000},
        BY_CODE,
        (
            Target("under 50 µs a step over the bare handler", microseconds(50, OURS, "bare handler")),
            Target(
                "the dispatcher alone under 50 µs with every event told",
                microseconds(50, "dispatcher alone, events told"),
            ),
            Target(
                "the whole step under 50 µs with every event told",
                microseconds(50, "detent, events told", "bare handler"),
            ),
        ),
        ("the peers: compared under engine",),
        floor="bare handler",
        columns=(Column("us", "µs/step"),),
    ),
    Workload(
        "dispatch",
        "dispatch-agent",
        "one agent step answering after 100 ms, validated, recorded at full sync, one after another",
        "agent",
        {"runs": 30, "wait": 0.1},
        {"runs": 10, "wait": 0.1},
        (RAW_CALL, RAW_RECORDED, *BY_AGENT, *AGENTS),
        tuple(
            Target(f"{name}: under 5 % over the raw call", over(0.05, name, "raw call"))
            for name in names(BY_AGENT)
        ),
        NO_AGENTS,
        floor="raw call",
        columns=(Column("over_ms", "ms/step over 100"),),
    ),
    Workload(
        "dispatch",
        "dispatch-fanout",
        "concurrent agent steps answering after 100 ms, recorded at full sync (ideal 0.1 s)",
        "agent",
        {"runs": 300, "wait": 0.1, "together": True},
        {"runs": 100, "wait": 0.1, "together": True},
        (RAW_CALL, RAW_RECORDED, *BY_AGENT, *AGENTS),
        absent=NO_AGENTS,
        floor="raw call",
        columns=(Column("memory", "MB more", "{:.1f}", 1e-6),),
    ),
    Workload(
        "agent",
        "agent",
        "one step with a query and an effect, by a model over HTTP answering after 5 ms, at full sync",
        "agent",
        {"runs": 50, "wait": 0.005},
        {"runs": 20, "wait": 0.005},
        (acting(BARE_LOOP, bare=True), acting("detent, by code"), *BY_MODEL),
        tuple(
            Target(f"{name}: {words}", check)
            for name in names(BY_MODEL)
            for words, check in (
                ("at most 3 ms a visit over the model's time", within(3.0, "over_ms", " ms", name)),
                (
                    "at most 3 ms a visit over the bare loop",
                    within_over(3.0, "over_ms", " ms", name, BARE_LOOP),
                ),
                ("at most 3 commits a visit", within(3.0, "commits", " commits", name)),
            )
        ),
        (IN_OWN_HOUSE,),
        floor=BARE_LOOP,
        rate="visits/s",
        columns=(
            Column("over_ms", "ms over the model"),
            Column("over_ms", "ms over the bare loop", over=BARE_LOOP),
            Column("asked", "replies/visit", "{:.0f}"),
            Column("commits", "commits/visit", "{:.0f}"),
        ),
    ),
    Workload(
        "warranty",
        "warranty-mails",
        "mails from bytes to answer by ordinary code, one after another, journal and outbox at full sync",
        "mails",
        {"mails": 1000},
        {"mails": 200},
        STEPWISE,
        (
            Target("under 200 ms a mail over legacy mode", share_of(200, "ms", "detent, legacy mode")),
            Target("the same for the slow ones (95 %)", share_of(200, "p95", "detent, legacy mode")),
            Target("under 200 ms a mail over the bare loop", share_of(200, "ms", "bare loop")),
        ),
        (IN_OWN_HOUSE,),
        floor="bare loop",
        rate="mails/s",
        columns=(Column("ms", "ms/mail"), Column("p95", "p95 ms")),
    ),
    Workload(
        "warranty",
        "warranty-flat",
        "the last hundred of 10,000 mails beside the first hundred, Detent alone",
        "flat",
        {"mails": 10_000, "window": 100},
        {"mails": 1000, "window": 100},
        (mailbox(OURS, "step"),),
        (
            Target("time a mail stays flat", within(1.2, "last_over_first", " times")),
            Target("bytes a mail stay flat", within(1.2, "bytes_over_first", " times")),
        ),
        (IN_OWN_HOUSE,),
        rate="mails/s",
        columns=(
            Column("last_over_first", "last/first time"),
            Column("cpu_over_first", "last/first CPU"),
            Column("bytes_over_first", "last/first bytes"),
        ),
        full_only=True,
        repeats=1,
    ),
    Workload(
        "workflow",
        "workflow-steps",
        "a workflow file of no-op steps, one run, each step committed at full sync, beside a flow in Python",
        "steps",
        {"steps": 1000},
        {"steps": 300},
        (IN_PYTHON, FROM_FILE),
        (Target("at most 1.5 times the flow in Python", at_most(1.5, "flow in Python")),),
        (IN_OWN_HOUSE,),
        floor="flow in Python",
        columns=(Column("us", "us/step", "{:.1f}"),),
    ),
    Workload(
        "workflow",
        "workflow-memory",
        "the same in memory: what the language itself costs a step",
        "steps",
        {"steps": 1000, "memory": True},
        {"steps": 300, "memory": True},
        (IN_PYTHON, FROM_FILE),
        (),
        (IN_OWN_HOUSE,),
        floor="flow in Python",
        columns=(Column("us", "us/step", "{:.1f}"),),
    ),
    Workload(
        "workflow",
        "workflow-loop",
        "a parallel loop, eight at a time, every iteration a child run committed at full sync",
        "loop",
        {"items": 1000},
        {"items": 200},
        (IN_PYTHON, FROM_FILE),
        (Target("at most 1.5 times the flow in Python", at_most(1.5, "flow in Python")),),
        (IN_OWN_HOUSE,),
        floor="flow in Python",
        columns=(Column("us", "us/iteration", "{:.1f}"),),
    ),
    Workload(
        "workflow",
        "workflow-expressions",
        "five usual expressions, parsed once, evaluated over and over, beside compiled Python",
        "expressions",
        {"rounds": 50_000},
        {"rounds": 10_000},
        (written("compiled Python", "python"), FROM_FILE),
        (Target("at most 3 us an expression", within(3.0, "us", " us")),),
        (IN_OWN_HOUSE,),
        floor="compiled Python",
        columns=(Column("us", "us/expression", "{:.2f}"),),
    ),
    Workload(
        "workflow",
        "workflow-reading",
        "a file of 1,500 steps read and checked, beside one of 500",
        "reading",
        {"steps": 1500},
        {"steps": 600},
        (FROM_FILE,),
        (Target("linear: thrice the steps take thrice the time", within(1.3, "growth", " times")),),
        (IN_OWN_HOUSE,),
        columns=(Column("us", "us/step", "{:.1f}"), Column("growth", "growth", "{:.2f}")),
    ),
    Workload(
        "serve",
        "serve-busy",
        "workers on one PostgreSQL server see runs through whose steps only compute",
        "serve",
        {"runs": 300, "steps": 20},
        {"runs": 100, "steps": 20},
        SERVING,
        KEEPING_UP,
        (IN_OWN_HOUSE,),
        floor=SERVING[0].name,
        columns=(Column("queries", "queries/run"),),
        repeats=3,
    ),
    Workload(
        "serve",
        "serve-waiting",
        "the same with steps that await 50 ms",
        "serve",
        {"runs": 1000, "steps": 4, "wait": 0.05},
        {"runs": 300, "steps": 4, "wait": 0.05},
        SERVING,
        KEEPING_UP,
        (IN_OWN_HOUSE,),
        floor=SERVING[0].name,
        columns=(Column("queries", "queries/run"),),
        repeats=3,
    ),
    Workload(
        "serve",
        "serve-timers",
        "workers wake runs whose timers are all due at once",
        "timers",
        {"runs": 2000, "asleep": 5.0},
        {"runs": 500, "asleep": 3.0},
        SERVING[:2],
        (),
        (IN_OWN_HOUSE,),
        rate="runs/s",
        repeats=3,
    ),
    Workload(
        "serve",
        "serve-heard",
        "from a run being started by another process to its first step in an idle worker",
        "heard",
        {"runs": 9},
        {"runs": 5},
        SERVING[:2],
        (),
        (IN_OWN_HOUSE,),
        rate=None,
        repeats=1,
    ),
)

GROUPS = tuple(dict.fromkeys(workload.group for workload in WORKLOADS))
