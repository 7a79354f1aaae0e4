"""The command `doctor`: checks the installation and the store, and lists what needs attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options, takes
from detent.runtime.plugs import plugs

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace
    from detent.engine.ports import Store

CORE = ("typer", "rich", "structlog", "pydantic", "pyyaml")
EXTRAS = {
    "local": (("xllamacpp",), "a model inside the process"),
    "models": (("httpx2", "genai_prices"), "model servers: Ollama, vLLM, llama.cpp, OpenAI"),
    "providers": (("pydantic_ai", "anthropic"), "Claude and the other providers"),
    "mcp": (("mcp",), "tools of MCP servers"),
    "mail": (("imapclient",), "mailboxes over IMAP"),
    "crm": (("httpx2",), "a registry and tickets over HTTP"),
    "postgres": (("psycopg", "psycopg_pool"), "runs in PostgreSQL"),
    "telemetry": (("opentelemetry.sdk",), "OpenTelemetry spans"),
}
"""Each optional extra: the modules it installs and its purpose."""
READABLE = "others may read it"


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="This installation")(doctor)


@takes("json", "project")
def doctor(
    options: Options,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every journal and check the store's files.")
    ] = False,
) -> int:
    """Check the installation and list what needs attention.

    Exits with 1 when something needs a person, with 2 when something is set up wrongly.
    """
    from detent.cli.output import say_json
    from detent.cli.workspace import run_async
    from detent.kernel.errors import DetentError

    report: dict[str, Any] = {
        "installed": _installed(), "extras": _extras(), "problems": [], "needs": [], "not_looked_at": [],
    }  # fmt: skip
    code = 0
    try:
        workspace = options.workspace(looks=True)
        report["settings"] = str(workspace.settings.file) if workspace.settings.file else None
        report["flows"] = {name: source.place for name, source in workspace.catalog.all().items()}
        for name, source in workspace.catalog.all().items():
            report["problems"] += [f"Flow '{name}': {problem}" for problem in source.flow.problems()]
    except DetentError as error:
        report["problems"].append(str(error))
        code = error.exit_code
    else:
        facts = {plug.name: dict(plug.host_facts(workspace.settings)) for plug in plugs()}
        report["host"] = {name: found for name, found in facts.items() if found}
        try:
            report["store"] = run_async(_store(workspace, report, deep))
            if (rights := report["store"].get("rights", "")).startswith(READABLE):
                report["problems"].append(f"The store {report['store']['place']}: {rights}")
        except DetentError as error:
            report["problems"].append(str(error))
            code = error.exit_code
        if not workspace.trust.ok:
            report["needs"].append({
                "what": "The project is not trusted, so nothing that it defines can be run.",
                "command": workspace.command("trust"),
            })  # fmt: skip
    report["healthy"] = not report["problems"] and not report["needs"]
    if options.json:
        say_json(report)
    else:
        _print(report)
    return code or (2 if report["problems"] else 1 if report["needs"] else 0)


def _installed() -> dict[str, str]:
    import platform
    import sqlite3
    import sys
    from importlib.metadata import PackageNotFoundError, version

    versions = {
        "detent": sys.modules["detent"].__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in CORE:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    return versions


def _extras() -> dict[str, dict[str, Any]]:
    from importlib.util import find_spec

    def there(module: str) -> bool:
        try:
            return find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    return {
        name: {
            "for": purpose,
            "present": all(there(module) for module in modules),
            "get": f"pip install 'detent[{name}]'",
        }
        for name, (modules, purpose) in EXTRAS.items()
    }


async def _store(workspace: Workspace, report: dict[str, Any], deep: bool) -> dict[str, Any]:
    """Check the store's health and add what needs attention to the report."""
    from pathlib import Path

    from detent.adapters.disk import shared
    from detent.runtime import store_health
    from detent.runtime.store_url import shown_url, store_url

    closed = workspace.closed_store()
    place = getattr(closed, "path", None)
    linked = isinstance(place, Path) and place.is_symlink()
    needs = store_health.loss_needs(closed)
    missing = isinstance(place, Path) and not place.exists() and not linked
    if isinstance(place, Path) and missing and (needs or place.parent.name == ".detent"):
        report["needs"] = [need.to_plain(workspace.command) for need in needs]
        return {
            "place": shown_url(store_url(workspace.settings)),
            "reachable": False,
            "note": "gone" if needs else "none yet; `detent run` makes one",
        }
    needs += store_health.disk_needs(closed)
    if deep:
        needs += await store_health.deep_check(closed)
    else:
        report["not_looked_at"].append("Journals and the store's files were not read through: --deep does.")
    report["needs"] = [need.to_plain(workspace.command) for need in needs]
    readable = isinstance(place, Path) and shared(place)
    async with workspace.store() as store:
        facts = {
            "reachable": True,
            **await store.facts(),
            **await _workers_and_runs(workspace, store, report),
        }
    if readable and isinstance(place, Path):
        facts["rights"] = (
            f"{READABLE}, and that could not be changed: chmod 600 {place}"
            if shared(place)
            else "others could read it; from now on it is yours alone"
        )
    return facts


async def _workers_and_runs(workspace: Workspace, store: Store, report: dict[str, Any]) -> dict[str, Any]:
    """Collect what the store knows about workers and runs."""
    from detent.engine.clock import SystemClock
    from detent.runtime.store_health import definition_problem, run_needs

    if workspace.catalog.left_out:
        report["not_looked_at"].append(
            "Whether runs can go on was not checked: the project is not trusted, so its plugins are left out."
        )
        health = await run_needs(store, SystemClock())
    else:
        flows = await workspace.known(store)
        health = await run_needs(store, SystemClock(), definition_problem(flows))
    report["needs"] += [need.to_plain(workspace.command) for need in health.needs]
    report["not_looked_at"] += health.not_looked_at
    statuses: dict[str, int] = {}
    for _, status, number in await store.flows():
        statuses[status.value] = statuses.get(status.value, 0) + number
    return {
        "statuses": statuses,
        "workers_alive": health.workers_alive,
        "workers_dead": health.workers_dead,
        "loose_runs": health.loose_runs,
        "due_runs": health.due_runs,
        "attention_runs": health.attention_runs,
    }


def _print(report: dict[str, Any]) -> None:
    from detent.cli.output import clean, fields, paint, say, size
    from detent.insight.formatting import count

    good, bad = paint("ok", "green"), paint("problem", "red")
    say(paint("installed", bold=True))
    fields((f"  {name}", version) for name, version in report["installed"].items())
    say()
    say(paint("extras", bold=True))
    fields(
        (
            f"  {name}",
            f"{good}, {extra['for']}" if extra["present"] else f"missing, {extra['for']}: {extra['get']}",
        )
        for name, extra in report["extras"].items()
    )
    if "flows" in report:
        say()
        say(paint("project", bold=True))
        flows = ", ".join(report["flows"]) or "none"
        fields([("  settings", report["settings"] or "none"), ("  flows", clean(flows))])
    for name, facts in report.get("host", {}).items():
        say()
        say(paint(name, bold=True))
        fields((f"  {fact}", clean(value)) for fact, value in facts.items())
    store = report.get("store")
    if store is not None:
        say()
        say(paint("store", bold=True))
        if not store["reachable"]:
            fields([("  place", clean(store["place"])), ("  state", store["note"])])
        else:
            counts = ", ".join(
                f"{number:,} {name.replace('_', ' ')}" for name, number in store["statuses"].items()
            )
            alive = len(store["workers_alive"])
            fields(
                [
                    ("  place", clean(store.get("place", ""))),
                    (
                        "  kind",
                        f"{store.get('kind')}, schema {store.get('schema')}, sync {store.get('synchronous')}",
                    ),
                    ("  size", size(store["bytes"]) if "bytes" in store else ""),
                    ("  rights", store.get("rights", "")),
                    ("  runs", counts or "none"),
                    ("  workers", f"{alive} alive" + _listed(", dead", store["workers_dead"])),
                    ("  interrupted", _problem_line(store["loose_runs"], "detent resume --all")),
                    ("  due", _problem_line(store["due_runs"], "detent resume --all")),
                    ("  waiting", _waiting_line(store["statuses"].get("waiting", 0))),
                    ("  attention", _problem_line(store["attention_runs"], "detent show RUN")),
                ]
            )
    say()
    for left_out in report["not_looked_at"]:
        say(clean(left_out))
    if report["needs"]:
        say(f"{bad}: {count(len(report['needs']), 'thing')} to see to")
        for need in report["needs"]:
            say(f"  {clean(need['what'])}")
            if need["command"]:
                say(f"    {clean(need['command'])}")
    if report["problems"]:
        say(f"{bad}: {count(len(report['problems']), 'thing')} to put right")
        for problem in report["problems"]:
            for line in problem.splitlines():
                say(f"  {clean(line)}")
    if report["healthy"]:
        say(f"{good}: nothing is wrong.")


def _waiting_line(number: int) -> str:
    """Runs that wait, for an answer or a time."""
    return f"{number:,}   (detent runs --status waiting)" if number else "none"


def _problem_line(runs: list[str], command: str) -> str:
    """One problem over several runs: their number, the first few, and the command that helps."""
    if not runs:
        return "none"
    more = f" and {len(runs) - 3:,} more" if len(runs) > 3 else ""
    return f"{', '.join(runs[:3])}{more}   ({command})"


def _listed(label: str, names: list[str]) -> str:
    return f"{label}: {', '.join(names[:5])}" if names else ""
