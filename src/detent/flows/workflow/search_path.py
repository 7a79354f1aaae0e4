"""Finds workflow files by name or path: the project's before the user's before the shipped ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from detent.authoring.document import MOST_BYTES, file_bytes
from detent.authoring.names import Nearest
from detent.authoring.problem import DocumentError, Place, Problem
from detent.flows.workflow.reading import Read, read_workflow
from detent.flows.workflow.spec import WorkflowSpec
from detent.kernel.errors import ConfigurationError

Source = Literal["project", "user", "builtin"]

SHIPPED = Path(__file__).parent / "workflows"
"""The workflows that come with Detent."""
SUFFIXES = (".yaml", ".yml")


class WorkflowNotFound(ConfigurationError):
    """There is no workflow of a name or path."""

    def __init__(self, name: str, message: str, suggestions: tuple[str, ...] = (), remedy: str = "") -> None:
        self.name = name
        self.suggestions = suggestions
        """The nearest names, at most five, best first."""
        meant = ", ".join(f"'{suggestion}'" for suggestion in suggestions)
        super().__init__(" ".join(filter(None, [message, f"Did you mean {meant}?" if meant else "", remedy])))


class Listed(NamedTuple):
    """One file on the shelf."""

    name: str
    """The value of its key `name`; the name of the file if it cannot be read."""
    file: Path
    source: Source
    description: str
    hidden_by: Path | None
    """The file with the same name that is found instead."""
    problems: tuple[Problem, ...]
    """Problems of its shape."""
    rivals: tuple[Path, ...] = ()
    """Other files with the same name on the same level; none of them can be found by name."""

    @property
    def clash(self) -> str:
        """Message about its name, if it has rivals."""
        names = " and ".join(_display_path(path) for path in sorted((self.file, *self.rivals)))
        many = "Two" if len(self.rivals) == 1 else str(len(self.rivals) + 1)
        return f"{many} {self.source} workflows are named '{self.name}': {names}. Rename all but one."


def is_path(text: str) -> bool:
    """Return whether a reference to a workflow is a path: it has a slash or a suffix of workflow files."""
    return "/" in text or "\\" in text or text.endswith(SUFFIXES)


class WorkflowShelf:
    """The folders in which workflow files are found."""

    def __init__(
        self, project: Path | None, user: Path | None = None, builtin: Path | None = SHIPPED
    ) -> None:
        """Each level is a folder of files; a missing folder has none."""
        self.levels: tuple[tuple[Source, Path | None], ...] = (
            ("project", project), ("user", user), ("builtin", builtin),
        )  # fmt: skip
        self._read: dict[Path, tuple[tuple[int, int], Read]] = {}

    def all(self) -> list[Listed]:
        """Return every file, in the order of the levels."""
        listed: list[Listed] = []
        first: dict[str, Path] = {}
        for source, folder in self.levels:
            by_name: dict[str, list[Path]] = {}
            reads: list[tuple[str, Path, Read]] = []
            for path in files_of(folder):
                read = self.load(path)
                spec = read.partial
                name = spec.name if spec is not None and spec.name else path.stem
                by_name.setdefault(name, []).append(path)
                reads.append((name, path, read))
            for name, path, read in reads:
                description = read.partial.description if read.partial is not None else ""
                rivals = tuple(other for other in by_name[name] if other != path)
                hidden = first.get(name)
                listed.append(Listed(name, path, source, description, hidden, read.problems, rivals))
            for name, paths in by_name.items():
                first.setdefault(name, paths[0])
        return listed

    def names(self) -> list[str]:
        """Return the names of the workflows, duplicate ones included."""
        return list(dict.fromkeys(listed.name for listed in self.all() if listed.hidden_by is None))

    def find(self, name: str, base: Path) -> Path:
        """Return the file of a name, or at a path that starts from the folder `base`.

        Raises:
            WorkflowNotFound: there is no such workflow.
            ConfigurationError: two files on one level have the name.
        """
        if is_path(name):
            path = (base / Path(name).expanduser()).absolute()
            if path.is_file():
                return path
            candidates = [*self.names(), *(entry.name for entry in files_of(path.parent))]
            meant = Nearest().of(Path(name).name, candidates)
            raise WorkflowNotFound(name, f"There is no workflow file '{path}'.", meant)
        visible = [entry for entry in self.all() if entry.hidden_by is None]
        for entry in visible:
            if entry.name == name:
                if entry.rivals:
                    raise ConfigurationError(entry.clash)
                return entry.file
        names = dict.fromkeys(entry.name for entry in visible)
        project_folder = self.levels[0][1]
        where = (
            f"By name they are found in {_display_path(project_folder)}, elsewhere by their path. "
            if project_folder
            else ""
        )
        raise WorkflowNotFound(
            name, f"There is no workflow '{name}'.", Nearest().of(name, names),
            f"{where}See: detent workflow list",
        )  # fmt: skip

    def load(self, path: Path) -> Read:
        """Read a file; an unchanged file is not read again."""
        file_name = _display_path(path)
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size)
            before = self._read.get(path)
            if before is not None and before[0] == stamp:
                return before[1]
            raw = file_bytes(path, MOST_BYTES + 1)
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            return Read(None, (Problem("E010", message, Place(file_name, 1)),))
        read = read_workflow(raw, file_name, folder=path.parent)
        steps = read.partial.every_step() if read.partial is not None else ()
        prompts = any(step.config.prompt_file is not None for step in steps)
        # Prompt files may change while the workflow file does not.
        if not prompts and not any(problem.code == "E020" for problem in read.problems):
            self._read[path] = (stamp, read)
        return read

    def spec(self, name: str, base: Path) -> WorkflowSpec:
        """Return the workflow of a name or path.

        Raises:
            WorkflowNotFound: there is no such workflow.
            DocumentError: the file has errors; it lists all of them.
        """
        path = self.find(name, base)
        read = self.load(path)
        if read.spec is None:
            raise DocumentError(f"Workflow file {_display_path(path)}", read.problems)
        return read.spec

    def finder(self, base: Path) -> Callable[[str], WorkflowSpec]:
        """Return the function with which `check_read` finds other workflows from the folder `base`."""
        return lambda name: self.spec(name, base)


def files_of(folder: Path | None) -> list[Path]:
    """Return the workflow files of a folder, sorted by name."""
    if folder is None:
        return []
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.suffix in SUFFIXES and path.is_file()]


def _display_path(path: Path) -> str:
    """A path for messages: relative to the current folder if it is inside."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        return path.as_posix()
