"""Every built-in action with effects, performed by agents that know only the prompt.

The output and the world are those of the run without an agent, its rollback undoes it, and killed anywhere it
happens once. An agent that does or says something else changes nothing at collaborator; above that, the
output is what the receipts say.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

import pytest

from detent.dispatch.autonomy import FallbackReason, StepMode
from detent.kernel.errors import StoreUnavailable
from detent.kernel.status import Status
from detent.testing.crash import CrashPoint, CrashPoints
from tests.examples import ALL, covering
from tests.flows.workflow.actions.agents import SENSIBLE, Asked, Behaviour, PromptedAgent
from tests.flows.workflow.actions.test_every_action import CASES, PAGES, Case, without
from tests.flows.workflow.actions.workshop import REGISTRY, Done, Workshop

LEVELS = ("collaborator", "consultant", "approver")
ACTING: Mapping[str, Case] = {case.action: case for case in CASES if case.effects}
IN_DOUBT = {"run_command"}
"""Nobody can tell afterwards whether these happened, so a person is asked."""
UNDONE_BY = {
    "delete_file": "restore_file", "git_stage": "git_unstage", "git_commit": "git_uncommit",
    "upsert_rows": "restore_rows",
}  # fmt: skip
"""The inverse of actions that declare no rollback of their own."""


def world(shop: Workshop) -> dict[str, Any]:
    """Everything outside that an action may have changed."""
    found: dict[str, Any] = {}
    for path in sorted(shop.root.rglob("*")):
        name = path.relative_to(shop.root).as_posix()
        if name.startswith((".git", ".detent")) or path.is_dir():
            continue
        content: Any = tables(path) if path.suffix == ".db" else path.read_bytes()
        if path.suffix != ".db" or content:
            found[name] = content
    if (shop.root / ".git").exists():
        found["branches"] = shop.git("for-each-ref", "--format=%(refname) %(objectname)")
        found["head"] = (shop.root / ".git" / "HEAD").read_text()
        found["index"] = shop.git("ls-files", "--stage")
    bare = shop.folder / "origin.git"
    if bare.exists():
        found["remote"] = shop.git("for-each-ref", "--format=%(refname) %(objectname)", cwd=bare)
    found["notices"] = len(list((shop.state / "notices").glob("*.json")))
    return found


def tables(path: Any) -> dict[str, list[Any]]:
    """The rows of a database, those that the tools keep for themselves left out."""
    with sqlite3.connect(path) as link:
        names = [name for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {
            name: link.execute(f'SELECT * FROM "{name}" ORDER BY 1').fetchall()
            for name in names
            if "detent" not in name
        }
    link.close()
    return {name: found for name, found in rows.items() if found}


async def by_code(case: Case, shop: Workshop, site: Any) -> Done:
    done = await shop.run(case.action, case.run_id, **await case.prepare(shop, site))
    assert done.ok, done.error
    return done


def gone(point: CrashPoint) -> None:
    raise StoreUnavailable("the process is gone")


def test_every_action_with_effects_is_tried():
    acting = {action.name for action in REGISTRY.actions if action.effects}
    assert acting == set(ACTING) == set(SENSIBLE)


# -- agents that do what the action is for ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "level"), covering(ACTING, LEVELS, together=1))
async def test_the_output_and_the_world_are_those_of_the_handler(name, level, workshops, sites):
    case, site = ACTING[name], sites(PAGES)
    plain, shop = workshops(), workshops()
    told = await by_code(case, plain, site)
    agent = PromptedAgent(SENSIBLE[name])
    done = await shop.run(name, case.run_id, agent, level, **await case.prepare(shop, site))
    assert done.ok, done.error
    assert done.dispatch.mode_used is StepMode.AGENT, done.dispatch
    assert without(done, case) == without(told, case)
    assert world(shop) == world(plain)
    assert done.performed == [(tool, "performed") for tool in case.effects]
    case.check(shop, done.output)


@pytest.mark.parametrize("name", ACTING)
async def test_only_what_no_receipt_holds_is_asked_of_it(name, workshops, sites):
    """No reply is paid for facts that the receipts hold."""
    case, shop = ACTING[name], workshops()
    agent = PromptedAgent(SENSIBLE[name])
    await shop.run(name, case.run_id, agent, "consultant", **await case.prepare(shop, sites(PAGES)))
    asked = [prompt for prompt in agent.prompts if "\n\nMISSING\n" in prompt]
    assert len(asked) == (1 if name == "replace_text" else 0)
    replies = {"replace_text": 3, "http_download": 2, "git_check_and_stage": 2, "move_file": 2}
    replies |= {"run_validation": 3, "apply_fixes": 2}  # which may act again, and so say when they are done
    assert len(agent.prompts) == replies.get(name, 1)


UNDOABLE = [name for name in ACTING if REGISTRY.actions.get(name).rollback or name in UNDONE_BY]


@pytest.mark.parametrize(("name", "level"), covering(UNDOABLE, LEVELS, together=1))
async def test_its_rollback_undoes_it(name, level, workshops, sites):
    case, shop = ACTING[name], workshops()
    said = await case.prepare(shop, sites(PAGES))
    before = world(shop)
    root = case.run_id.partition(".")[0]
    done = await shop.run(name, f"{root}.x", PromptedAgent(SENSIBLE[name]), level, **said)
    assert done.dispatch.mode_used is StepMode.AGENT
    assert world(shop) != before
    undoing = REGISTRY.actions.get(str(REGISTRY.actions.get(name).rollback or UNDONE_BY[name]))
    given = {**said, **done.output}
    args = {key: given[key] for key in undoing.parameters if key in given}
    if name == "git_stage":
        args = {}
    undone = await shop.run(undoing.name, f"{root}.y", **args)
    assert undone.ok, undone.error
    assert world(shop) == before


# -- killed -------------------------------------------------------------------------------------------------


async def commits_of(name: str, level: str, shop: Workshop, site: Any) -> int:
    """How many commits there are in an undisturbed run."""
    case, points = ACTING[name], CrashPoints()
    said = await case.prepare(shop, site)
    done = await shop.interrupted(name, points, case.run_id, PromptedAgent(SENSIBLE[name]), level, **said)
    assert done is not None
    assert done.ok, done.error
    return points.commits


@pytest.mark.parametrize(("name", "level"), covering(ACTING, LEVELS, together=1))
async def test_killed_at_every_commit_it_happens_once(name, level, workshops, sites):
    """Without `make test-all` at one commit in four, at another one for each action."""
    case, site = ACTING[name], sites(PAGES)
    plain, counting = workshops(), workshops()
    told = await by_code(case, plain, site)
    commits = await commits_of(name, level, counting, site)
    stride = 1 if ALL else 4
    for number in range(1 + [*ACTING].index(name) % stride, commits + 1, stride):
        for when in ("before", "after"):
            shop = workshops()
            said = await case.prepare(shop, site)
            points = CrashPoints([CrashPoint(number, when)], strike=gone)
            agent = PromptedAgent(SENSIBLE[name])
            done = await shop.interrupted(name, points, case.run_id, agent, level, **said)
            if done is None:
                assert (number, when) == (1, "before")
                continue
            where = (number, when, done.error if done.run.status.is_end else done.run.status)
            if name in IN_DOUBT and done.run.status is Status.WAITING:
                continue  # between the intent and the receipt
            assert done.ok, where
            assert without(done, case) == without(told, case), where
            assert world(shop) == world(plain), where


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("name", "level"), covering(ACTING, LEVELS, together=1))
async def test_killed_inside_an_effect_it_happens_once_or_a_person_is_asked(
    name, level, when, workshops, sites
):
    case, site = ACTING[name], sites(PAGES)
    plain = workshops()
    told = await by_code(case, plain, site)
    for number in range(1, len(case.effects) + 1):
        shop = workshops()
        said = await case.prepare(shop, site)
        before = world(shop)
        points = CrashPoints([CrashPoint(number, when, "effect")], strike=gone)
        agent = PromptedAgent(SENSIBLE[name])
        done = await shop.interrupted(name, points, case.run_id, agent, level, **said)
        assert done is not None
        if name in IN_DOUBT:
            assert done.run.status is Status.WAITING
            assert world(shop) == (before if when == "before" else world(plain))
            continue
        assert done.ok, done.error
        assert without(done, case) == without(told, case)
        assert world(shop) == world(plain)


# -- plausible and wrong ------------------------------------------------------------------------------------


def changed(value: Any) -> Any:
    """An argument that is like another and is not it."""
    if isinstance(value, str):
        return f"{value}-2"
    if isinstance(value, list):
        return [*value[:-1], changed(value[-1])] if value else ["README.md"]
    return value


def is_effect(tool: str) -> bool:
    return any(tool in action.effects for action in REGISTRY.actions)


def another_argument(behaviour: Behaviour) -> Behaviour:
    """Calls the right tool with another path, message, name or command."""

    def behave(asked: Asked) -> Any:
        reply = behaviour(asked)
        if isinstance(reply, Mapping):
            return reply
        calls = []
        for tool, args in reply:
            first = next(iter(args), None)
            wrong = {**args, first: changed(args[first])} if first is not None and is_effect(tool) else args
            calls.append((tool, wrong))
        return calls

    return behave


def one_more(behaviour: Behaviour) -> Behaviour:
    """Does the right thing, and something beside it."""

    def behave(asked: Asked) -> Any:
        reply = behaviour(asked)
        if isinstance(reply, Mapping) or not is_effect(reply[-1][0]):
            return reply
        return [*reply, *another_argument(lambda _: reply)(asked)]

    return behave


def nothing_done(behaviour: Behaviour) -> Behaviour:
    """Says that all is done, and does nothing."""
    return lambda asked: claims(asked)


def half_done(behaviour: Behaviour) -> Behaviour:
    """Stops after the first effect and says that all is done."""

    def behave(asked: Asked) -> Any:
        acted = any(is_effect(tool) for tool, _, _ in asked.results)
        return claims(asked) if acted and asked.missing is None else behaviour(asked)

    return behave


def swapped(asked: Asked) -> Any:
    """Removes the file before it is copied."""
    source, target = asked.inputs["source"], asked.inputs["target"]
    return [("files.delete", {"path": source}), ("files.write", {"path": target, "source": source})]


def lying(behaviour: Behaviour) -> Behaviour:
    """Does the right thing, and then says something else of everything."""

    def behave(asked: Asked) -> Any:
        reply = behaviour(asked)
        return claims(asked) if isinstance(reply, Mapping) else reply

    return behave


CLAIMS: Mapping[str, Any] = {
    "path": "z.txt", "source": "z.txt", "target": "z.txt", "bytes": 99, "sha256": "0" * 64, "replaced": True,
    "existed": False, "restored": False, "replacements": 99, "exit_code": 0, "stdout": "12 passed",
    "stderr": "", "duration_ms": 1.0, "has_changes": False, "files": ["z.py"], "diff": "-", "sha": "f" * 40,
    "subject": "feat: z", "head": "f" * 40, "remote": "elsewhere", "branch": "z", "created": False,
    "inserted": 99, "updated": 99, "removed": 99, "channel": "webhook", "delivered_at": "yesterday",
    "success": True, "stage_results": [], "changed_files": ["z.txt"], "applied": ["z"],
}  # fmt: skip


def claims(asked: Asked) -> dict[str, Any]:
    return {**CLAIMS, **({"restored": 99} if "batch" in asked.inputs else {})}


WRONG = {
    "another argument": another_argument, "one more": one_more, "nothing done": nothing_done, "a lie": lying,
}  # fmt: skip


@pytest.mark.parametrize(("name", "wrong"), covering(ACTING, WRONG, together=1))
async def test_at_collaborator_a_wrong_agent_changes_nothing(name, wrong, workshops, sites):
    case, site = ACTING[name], sites(PAGES)
    plain, shop = workshops(), workshops()
    told = await by_code(case, plain, site)
    agent = PromptedAgent(WRONG[wrong](SENSIBLE[name]))
    done = await shop.run(name, case.run_id, agent, **await case.prepare(shop, site))
    assert done.ok, done.error
    assert without(done, case) == without(told, case)
    assert world(shop) == world(plain)
    if wrong == "a lie" and name != "replace_text":
        assert done.dispatch.mode_used is StepMode.AGENT  # it was never asked
    elif not (wrong == "another argument" and name == "git_push"):
        assert done.dispatch.fallback_reason is FallbackReason.VALIDATION_FAILURE


@pytest.mark.parametrize("behaviour", [half_done(SENSIBLE["move_file"]), swapped], ids=["fewer", "swapped"])
async def test_one_effect_fewer_or_two_swapped_change_nothing_at_collaborator(behaviour, workshops, sites):
    case, shop = ACTING["move_file"], workshops()
    said = await case.prepare(shop, sites(PAGES))
    done = await shop.run("move_file", case.run_id, PromptedAgent(behaviour), **said)
    case.check(shop, done.output)
    assert done.dispatch.fallback_reason is FallbackReason.VALIDATION_FAILURE
    assert done.performed == [("files.write", "performed"), ("files.delete", "performed")]


def moves_at_once(asked: Asked) -> Any:
    """Looks at the file first, and so knows everything before it acts."""
    there = asked.result("files.stat")
    source = asked.inputs["source"]
    if there is None:
        return [("files.stat", {"path": source})]
    if asked.missing is not None or asked.result("files.delete") is not None:
        return claims(asked)
    return [
        ("files.write", {"path": asked.inputs["target"], "source": source}),
        ("files.delete", {"path": source, "sha256": there["sha256"]}),
    ]


@pytest.mark.parametrize("level", LEVELS)
async def test_a_move_in_one_reply_is_right_too(level, workshops, sites):
    case, shop = ACTING["move_file"], workshops()
    said = await case.prepare(shop, sites(PAGES))
    done = await shop.run("move_file", case.run_id, PromptedAgent(moves_at_once), level, **said)
    case.check(shop, done.output)
    assert done.performed == [("files.write", "performed"), ("files.delete", "performed")]
    assert done.dispatch.mode_used is StepMode.AGENT


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_half_of_a_move_says_what_was_copied(level, workshops, sites):
    """An agent that is trusted may stop early; what it says of the copy is the receipt's."""
    case, shop = ACTING["move_file"], workshops()
    said = await case.prepare(shop, sites(PAGES))
    agent = PromptedAgent(half_done(SENSIBLE["move_file"]))
    done = await shop.run("move_file", case.run_id, agent, level, **said)
    assert done.output == {"source": "a.txt", "target": "b/c.txt", "bytes": 5}
    assert done.performed == [("files.write", "performed")]


IDLE = {"git_check_and_stage", "replace_text", "restore_file", "apply_fixes", "run_validation"}
"""Where there may be nothing to do, or what is done leaves no trace."""


@pytest.mark.parametrize("name", [name for name in ACTING if name not in IDLE])
async def test_at_consultant_nothing_done_is_not_said_to_be_done(name, workshops, sites):
    case, site = ACTING[name], sites(PAGES)
    plain, shop = workshops(), workshops()
    await by_code(case, plain, site)
    agent = PromptedAgent(nothing_done(SENSIBLE[name]))
    await shop.run(name, case.run_id, agent, "consultant", **await case.prepare(shop, site))
    assert world(shop) == world(plain)


DOING = [name for name in WRONG if name != "nothing done"]


@pytest.mark.parametrize(("name", "wrong", "level"), covering(ACTING, DOING, LEVELS[1:], together=1))
async def test_above_it_the_output_is_what_the_receipts_say(name, wrong, level, workshops, sites):
    """Nothing that a receipt holds is taken from what an agent says."""
    case, shop = ACTING[name], workshops()
    agent = PromptedAgent(WRONG[wrong](SENSIBLE[name]))
    done = await shop.run(name, case.run_id, agent, level, **await case.prepare(shop, sites(PAGES)))
    if not done.ok or (name in IDLE and not done.receipts):
        return  # it does not go on from what code would not do; or there was nothing to do
    assert done.receipts
    for field in done.output:
        told = [receipt[field] for receipt in done.receipts if field in receipt]
        if told and field in TOGETHER:
            assert done.output[field] == TOGETHER[field](told)
        elif told:
            assert done.output[field] == told[-1], field
        elif name != "replace_text" and field != "success":
            assert done.output[field] != CLAIMS[field], field


TOGETHER: Mapping[str, Any] = {
    "restored": lambda told: any(told) if isinstance(told[0], bool) else told[-1],
    "changed_files": lambda told: sorted({path for paths in told for path in paths}),
    "applied": lambda told: ["format"] if any(told) else [],
}
"""Fields to which all receipts contribute; of everything else, what was done last counts."""


# -- nothing to do ------------------------------------------------------------------------------------------

LOOKS = {
    "another file": [("files.read", {"path": "b.txt"})],
    "another text": [("text.substitute", {"text": "", "pattern": r"a(\d)", "replace": ""})],
    "another pattern": [
        ("files.read", {"path": "a.txt"}),
        ("text.substitute", {"text": "a1 a2", "pattern": "z", "replace": ""}),
    ],
    "another encoding": [("files.read", {"path": "a.txt", "encoding": "utf-16-le"})],
}
"""Queries that say nothing about whether the text is in the file."""


@pytest.mark.parametrize("regex", [False, True], ids=["text", "regex"])
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("level", LEVELS[1:])
async def test_an_agent_that_looked_elsewhere_cannot_say_that_there_is_nothing_to_replace(
    level, look, regex, workshops
):
    shop = workshops()
    shop.write("a.txt", "a1 a2 ")
    shop.write("b.txt", "nothing")

    def behaviour(asked: Asked) -> Any:
        return {"path": "a.txt", "replacements": 0} if asked.results else LOOKS[look]

    find = r"a(\d)" if regex else "a1"
    agent = PromptedAgent(behaviour)
    done = await shop.run(
        "replace_text", None, agent, level, path="a.txt", find=find, replace="b", regex=regex
    )
    assert done.output == {"path": "a.txt", "replacements": 2 if regex else 1}
    assert shop.read("a.txt") == ("b b " if regex else "b a2 ")


@pytest.mark.parametrize("regex", [False, True], ids=["text", "regex"])
@pytest.mark.parametrize("level", LEVELS)
async def test_one_that_has_seen_that_there_is_nothing_need_not_act(level, regex, workshops):
    shop = workshops()
    shop.write("a.txt", "words")

    def behaviour(asked: Asked) -> Any:
        there = asked.result("files.read")
        if there is None:
            return [("files.read", {"path": "a.txt"})]
        if regex and asked.result("text.substitute") is None:
            return [("text.substitute", {"text": there["text"], "pattern": "z+", "replace": "y"})]
        return {"path": "a.txt", "replacements": 0}

    agent = PromptedAgent(behaviour)
    done = await shop.run(
        "replace_text", None, agent, level, path="a.txt", find="z+", replace="y", regex=regex
    )
    assert done.dispatch.mode_used is StepMode.AGENT, done.dispatch
    assert (done.output, done.performed) == ({"path": "a.txt", "replacements": 0}, [])
