"""Workflows as a kind of flow: the object through which the program uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Beginning, Kind

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.flows.workflow.library import Workflows
    from detent.kernel.run import Run
    from detent.runtime.catalog import Catalog
    from detent.runtime.plugs import Project, Purged
    from detent.runtime.settings import Keys, Settings

FOLDER = ".detent/workflows"
"""Folder of a project's workflow files."""


class WorkflowKind(Kind):
    """YAML files whose steps are performed by code or by agents."""

    name = "workflow"
    commands = "detent.flows.workflow.commands.group:workflow"
    run = "detent.flows.workflow.commands.run:run"
    schema = "detent.flows.workflow.schema:json_schema"
    suffixes = (".yaml", ".yml")
    templates = ("linear", "loop", "agent")

    def headings(self) -> Mapping[str, Keys]:
        """`workflow`, `validation`, `notify`."""
        from detent.flows.workflow import settings

        return {
            "workflow": settings.workflow, "validation": settings.validation, "notify": settings.notify
        }  # fmt: skip

    def folders(self) -> Sequence[str]:
        """Folders in which workflow files are found by name."""
        return (FOLDER,)

    def files(self, settings: Settings, root: Path) -> Iterator[Path]:
        """Paths of subworkflows and prompts that workflow files name, or that those name; existing or not."""
        from detent.flows.workflow.named_files import named_by

        yield from named_by(root / FOLDER, self.suffixes)

    def programs(self, settings: Settings) -> Mapping[str, Any]:
        """Commands of validation stages."""
        stages = settings.get("validation", "stages", default={})
        return {
            f"validation.stages.{name}.{key}": entry.get(key)
            for name, entry in (stages.items() if isinstance(stages, Mapping) else ())
            for key in (("command", "fix_command") if isinstance(entry, Mapping) else ())
        }

    def definitions(self, project: Project) -> Workflows:
        """The workflow files of a project."""
        from detent.flows.workflow.library import Workflows

        return Workflows(self, project)

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """Return a new workflow file with comments, made from a template.

        Raises:
            ConfigurationError: the name is not valid, or the project has a workflow of that name.
        """
        from detent.flows.workflow.library import shelf_for
        from detent.flows.workflow.settings import project_workflows
        from detent.flows.workflow.starters import starter

        if not re.fullmatch(r"[a-z][a-z0-9-]{0,63}", name):
            raise ConfigurationError(
                "A workflow's name is up to 64 small letters, digits and -, a letter first: import-orders."
            )
        namesakes = [entry for entry in shelf_for(settings).all() if entry.name == name]
        existing = next((entry for entry in namesakes if entry.source == "project"), None)
        file = project_workflows(settings) / f"{name}.yaml"
        path = file.relative_to(settings.folder) if file.is_relative_to(settings.folder) else file
        if existing is not None:
            path = existing.file.relative_to(settings.folder)
        if existing is not None or file.exists():
            raise ConfigurationError(f"There is a workflow '{name}' already: {path}. Choose another name.")
        commands = [f"detent workflow {verb} {name}" for verb in ("validate", "viz", "run")]
        hides = f"It hides the {namesakes[0].source} workflow of the same name." if namesakes else ""
        return Beginning({file: starter(template, name)}, f"A workflow is in {path}.", commands, hides)

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any] | None:
        """Print the steps of a run and of its child runs as they happen."""
        from detent.flows.workflow.events import EventObserver
        from detent.flows.workflow.run_lines import WorkflowLines

        spec = getattr(flow, "workflow", None)
        if spec is None:
            return None
        lines = WorkflowLines(spec)
        engine.add_observer(EventObserver(lines, engine.flows))
        return lines

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print the status of a run of a workflow, its result or what it waits for."""
        from detent.flows.workflow.run_lines import tell_ending
        from detent.flows.workflow.runs import set_shown

        if getattr(engine.flows.get(run.flow), "workflow", None) is None:
            return False
        await tell_ending(workspace, engine, run, told)
        await set_shown(engine, run, True)
        return True

    async def purge(
        self, settings: Settings, store: Store, run_id: str | None, before: float | None
    ) -> Purged:
        """Delete the files kept to restore what runs have changed."""
        from detent.flows.workflow.cleanup import Keeping
        from detent.flows.workflow.library import STATE

        files = Keeping(settings.folder / STATE)
        if run_id is not None:
            return await files.purge(store, run_id)
        assert before is not None
        return await files.purge_older(store, before)


KIND = WorkflowKind()


def workflows_of(catalog: Catalog) -> Workflows:
    """Return the workflow files of the project that a command works in."""
    from detent.flows.workflow.library import Workflows

    definitions = catalog.definitions(KIND)
    assert isinstance(definitions, Workflows)
    return definitions
