"""Finds what step files and manifests name: handlers, validators, and the tools of modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from detent.authoring.problem import Problem
from detent.authoring.source_imports import import_from_source
from detent.engine.tools import Tool, tools_of
from detent.flows.playbook.folder import INSTRUCTIONS
from detent.flows.playbook.playbook import Playbook
from detent.kernel.errors import nearest

Given: TypeAlias = Mapping[str, Callable[..., Any]] | Callable[[str], Callable[..., Any] | None] | None
"""Functions by registered name, or a function that finds them."""
Load: TypeAlias = Callable[[str], ModuleType | str]
"""Gives the module of a name, or says why it is not loaded."""


def imported(name: str) -> ModuleType | str:
    """A module, or why it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        where = "" if missing == name else f" (needed by '{name}')"
        return f"there is no module '{missing}'{where}."
    except (Exception, SystemExit) as error:
        return f"module '{name}' cannot be imported: {type(error).__name__}: {error}."


class FunctionRegistry:
    """Functions by name: given ones, those of a manifest's modules, `package.module:function`."""

    def __init__(
        self, registered: Given = None, modules: Iterable[ModuleType] = (), load: Load = imported
    ) -> None:
        self._registered = registered
        self._load = load
        self._modules = tuple(modules)

    def find(self, name: str) -> Callable[..., Any] | str:
        """The function of a name, or why there is none."""
        if isinstance(self._registered, Mapping):
            function: Any = self._registered.get(name)
        else:
            function = self._registered(name) if self._registered is not None else None
        if callable(function):
            return function  # type: ignore[no-any-return]
        if ":" in name:
            module_name, _, function_name = name.partition(":")
            module = self._load(module_name)
            if isinstance(module, str):
                return module
            function = module
            for part in function_name.split("."):
                function = getattr(function, part, None)
            return (
                function
                if callable(function)
                else f"module '{module_name}' has no function '{function_name}'."
            )
        for module in self._modules:
            function = getattr(module, name, None)
            if callable(function) and not isinstance(function, type):
                return function  # type: ignore[no-any-return]
        known = list(self._registered) if isinstance(self._registered, Mapping) else []
        for module in self._modules:
            own = (name for name, value in vars(module).items() if _written_in(module, value))
            known += [name for name in own if not name.startswith("_")]
        listed = f" Registered: {', '.join(sorted(known))}." if known else ""
        return f"nothing is registered as '{name}'.{nearest(name, known)}{listed}"


def _written_in(module: ModuleType, value: Any) -> bool:
    """Whether a function is defined in a module rather than imported there."""
    here = getattr(value, "__module__", None) == module.__name__
    return here and callable(value) and not isinstance(value, type)


def reachable(folder: Path) -> None:
    """Make modules beside a playbook importable; installed ones take precedence."""
    import_from_source(folder)
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


class Names:
    """The functions that a playbook names: registered ones, and those of the manifest's modules."""

    def __init__(
        self,
        playbook: Playbook,
        tools: Iterable[Tool],
        handlers: Given = None,
        validators: Given = None,
        load: Load = imported,
    ) -> None:
        manifest = playbook.manifest
        self.problems: list[Problem] = []
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools}
        root = playbook.loader.folder.root
        if manifest.tools or manifest.handlers:
            reachable(root.parent if root.name == INSTRUCTIONS else root)
        for name in manifest.tools:
            module = load(name)
            if isinstance(module, str):
                self.problems.append(Problem("P14", module, manifest.place("tools"), "tools"))
                continue
            for tool in tools_of(module):
                self.tools.setdefault(tool.name, tool)
        modules: list[ModuleType] = []
        for name in manifest.handlers:
            module = load(name)
            if isinstance(module, str):
                self.problems.append(Problem("P16", module, manifest.place("handlers"), "handlers"))
            else:
                modules.append(module)
        self.handlers = FunctionRegistry(handlers, modules, load)
        self.validators = FunctionRegistry(validators, modules, load)
