"""Which eval suites there are: installed ones by entry point, those of the project's plugins, and the folders
a suite knows how to judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.evals.suite import GROUP, EvalSuite
from detent.kernel.errors import ConfigurationError, nearest
from detent.runtime.catalog import is_path
from detent.runtime.entry_points import offered
from detent.runtime.plugs import plugs

if TYPE_CHECKING:
    from detent.cli.workspace import Workspace

CASES = "evals/scenarios"
"""Where a project keeps its cases unless `eval.test_suite_path` says otherwise."""


class Chosen(NamedTuple):
    """A suite with the folder its cases are taken from."""

    suite: EvalSuite
    folder: Path
    note: str = ""
    """What people should know about the choice."""


def choose(workspace: Workspace, target: str | None, eval_dir: str | None) -> list[Chosen]:
    """The suites a command line means; none when there is nothing to judge."""
    found = _meant(workspace, target)
    if eval_dir is not None:
        folder = workspace.settings.folder / eval_dir
        if not folder.is_dir():
            raise ConfigurationError(f"There is no folder {eval_dir} (--eval-dir).")
        if len(found) > 1:
            names = ", ".join(suite.name for suite, _ in found)
            raise ConfigurationError(f"--eval-dir is for one suite; name it: {names}.")
        return [Chosen(suite, folder) for suite, _ in found]
    chosen = [_with_cases(workspace, suite, installed) for suite, installed in found]
    return [one for one in chosen if one is not None]


def _meant(workspace: Workspace, target: str | None) -> list[tuple[EvalSuite, bool]]:
    """Suites, each with whether it is an installed one."""
    folder = workspace.settings.folder
    if target is None:
        own = [(suite, False) for suite in _in_modules(workspace).values()]
        own += [(suite, False) for suite in _claiming(workspace, folder)]
        # Where the project has none: those that ship cases of their own.
        return own or [(suite, True) for suite in _installed().values() if suite.folder is not None]
    path = folder / target
    if path.is_dir():
        claiming = _claiming(workspace, path)
        if not claiming:
            raise ConfigurationError(
                f"No suite knows how to judge the folder {target}. Name the suite and give its cases with "
                f"--eval-dir {target}."
            )
        return [(claiming[0], False)]
    if is_path(target):
        return [(suite, False) for suite in _in_file(workspace, target)]
    ours = _in_modules(workspace)
    if target in ours:
        return [(ours[target], False)]
    there = _installed()
    if target in there:
        return [(there[target], True)]
    known = sorted({*ours, *there})
    listed = f" Suites: {', '.join(known)}." if known else " No suite is installed."
    raise ConfigurationError(f"There is no eval suite '{target}'.{nearest(target, known)}{listed}")


def _with_cases(workspace: Workspace, suite: EvalSuite, installed: bool) -> Chosen | None:
    settings = workspace.settings
    said = settings.get("eval", "test_suite_path")
    if said is not None and not isinstance(said, str):
        place = settings.place("eval", "test_suite_path")
        raise ConfigurationError(f"{place}: 'eval.test_suite_path' takes the path of a folder.")
    own = None if suite.folder is None else settings.folder / suite.folder
    if installed or own is None:
        folder = settings.base("eval", "test_suite_path") / (said or CASES)
        if folder.is_dir():
            return Chosen(suite, folder)
        if own is not None:
            return Chosen(suite, own, f"shipped cases, for there is no folder {said or CASES} here")
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
    found = list(_named(_of_module(module) for module in here).values())
    if not found:
        raise ConfigurationError(
            f"{path} defines no eval suite: no module-level value in it is an EvalSuite."
        )
    return found


def _of_module(module: Any) -> list[EvalSuite]:
    return [value for value in vars(module).values() if isinstance(value, EvalSuite)]


def _installed() -> dict[str, EvalSuite]:
    found = [suite for plug in plugs() if (suite := plug.eval_suite()) is not None]
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
        found.append(value)
    return _named([found])


def _named(groups: Any) -> dict[str, EvalSuite]:
    found: dict[str, EvalSuite] = {}
    for group in groups:
        for suite in group:
            other = found.setdefault(suite.name, suite)
            if other is not suite:
                raise ConfigurationError(f"Two eval suites are named '{suite.name}'.")
    return found
