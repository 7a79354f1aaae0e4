"""Finds eval suites: installed ones by entry point, those of the project's plugins, and those that claim a
folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.evals.suite import GROUP, EvalSuite
from detent.kernel.errors import ConfigurationError, nearest
from detent.runtime.catalog import is_path
from detent.runtime.entry_points import offered
from detent.runtime.plugs import apps, plugs

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace

CASES = "evals/scenarios"
"""Folder of a project's cases unless `eval.test_suite_path` names another."""


class Chosen(NamedTuple):
    """A suite with the folder of its cases."""

    suite: EvalSuite
    folder: Path
    note: str = ""
    """Note for the report about this choice."""


def choose(workspace: Workspace, target: str | None, eval_dir: str | None) -> list[Chosen]:
    """The suites that a command line selects; empty when there are none."""
    suites = _selected(workspace, target)
    if eval_dir is not None:
        folder = workspace.settings.folder / eval_dir
        if not folder.is_dir():
            raise ConfigurationError(f"There is no folder {eval_dir} (--eval-dir).")
        if len(suites) > 1:
            names = ", ".join(suite.name for suite, _ in suites)
            raise ConfigurationError(f"--eval-dir is for one suite; name it: {names}.")
        return [Chosen(suite, folder) for suite, _ in suites]
    chosen = [_with_cases(workspace, suite, installed) for suite, installed in suites]
    return [suite_with_cases for suite_with_cases in chosen if suite_with_cases is not None]


def _selected(workspace: Workspace, target: str | None) -> list[tuple[EvalSuite, bool]]:
    """The selected suites, each with whether it is installed."""
    folder = workspace.settings.folder
    if target is None:
        own = [(suite, False) for suite in _in_modules(workspace).values()]
        places = [folder, *(path for path in _definitions(workspace) if path.is_dir())]
        own += [(suite, False) for place in places for suite in _claiming(workspace, place)]
        configured = {app.name for app in apps() if app.configured(workspace.settings)}
        return own + [(suite, True) for name, suite in _installed().items() if name in configured]
    path = folder / target
    if path.is_dir():
        claiming = _claiming(workspace, path)
        if not claiming:
            raise ConfigurationError(
                f"No suite knows how to judge the folder {target}. Name the suite and give its cases with "
                f"--eval-dir {target}."
            )
        return [(claiming[0], False)]
    definition = workspace.definition(target) if not target.endswith(".py") else None
    if definition is not None:
        kind = definition.definitions.kind.name
        raise ConfigurationError(f"{target} is a {kind}, and a {kind} has no evals.{_listed(_installed())}")
    if is_path(target):
        return [(suite, False) for suite in _in_file(workspace, target)]
    ours = _in_modules(workspace)
    if target in ours:
        return [(ours[target], False)]
    installed = _installed()
    if target in installed:
        return [(installed[target], True)]
    known = {*ours, *installed}
    raise ConfigurationError(f"There is no eval suite '{target}'.{nearest(target, known)}{_listed(known)}")


def _listed(names: Iterable[str]) -> str:
    known = sorted(names)
    return f" Suites: {', '.join(known)}." if known else " No suite is installed."


def _definitions(workspace: Workspace) -> Iterator[Path]:
    """The definitions of the project and the user."""
    for definitions in workspace.catalog.every_definitions():
        yield from definitions.paths(shipped=False)


def _with_cases(workspace: Workspace, suite: EvalSuite, installed: bool) -> Chosen | None:
    settings = workspace.settings
    configured = settings.get("eval", "test_suite_path")
    if configured is not None and not isinstance(configured, str):
        place = settings.place("eval", "test_suite_path")
        raise ConfigurationError(f"{place}: 'eval.test_suite_path' takes the path of a folder.")
    own = None if suite.folder is None else settings.folder / suite.folder
    if installed or own is None:
        folder = settings.base("eval", "test_suite_path") / (configured or CASES)
        if folder.is_dir():
            return Chosen(suite, folder)
        if own is not None:
            return Chosen(suite, own, f"shipped cases, for there is no folder {configured or CASES} here")
        return None
    return Chosen(suite, own)


def _claiming(workspace: Workspace, folder: Path) -> list[EvalSuite]:
    suites = [*_in_modules(workspace).values(), *_installed().values()]
    claims = [suite.claim(folder) for suite in suites if suite.claim is not None]
    return [claimed for claimed in claims if claimed is not None]


def _in_modules(workspace: Workspace) -> dict[str, EvalSuite]:
    return _named(_of_module(module) for module in workspace.catalog.modules())


def _in_file(workspace: Workspace, path: str) -> list[EvalSuite]:
    before = {id(module) for module in workspace.catalog.modules()}
    workspace.catalog.add_file(path)
    added = [module for module in workspace.catalog.modules() if id(module) not in before]
    file = (workspace.settings.folder / path).resolve()
    here = added or [
        module
        for module in workspace.catalog.modules()
        if Path(getattr(module, "__file__", None) or "").resolve() == file
    ]
    suites = list(_named(_of_module(module) for module in here).values())
    if not suites:
        raise ConfigurationError(
            f"{path} defines no eval suite: no module-level value in it is an EvalSuite."
        )
    return suites


def _of_module(module: Any) -> list[EvalSuite]:
    return [value for value in vars(module).values() if isinstance(value, EvalSuite)]


def _installed() -> dict[str, EvalSuite]:
    suites = [suite for plug in plugs() if (suite := plug.eval_suite()) is not None]
    for point in offered(GROUP):
        try:
            value = point.load()
            if not isinstance(value, EvalSuite):
                value = value()
        except Exception as error:
            raise ConfigurationError(
                f"Eval suite '{point.name}' ({point.value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(value, EvalSuite):
            raise ConfigurationError(
                f"Eval suite '{point.name}' ({point.value}) gives a {type(value).__name__}, not an EvalSuite."
            )
        suites.append(value)
    return _named([suites])


def _named(groups: Any) -> dict[str, EvalSuite]:
    by_name: dict[str, EvalSuite] = {}
    for group in groups:
        for suite in group:
            other = by_name.setdefault(suite.name, suite)
            if other is not suite:
                raise ConfigurationError(f"Two eval suites are named '{suite.name}'.")
    return by_name
