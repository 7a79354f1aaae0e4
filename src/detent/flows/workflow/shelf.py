"""Finds workflow files by name or path: the project's before the user's before the shipped ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from detent.authoring.document import MOST_BYTES
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
    """No workflow goes by a name or path."""

    def __init__(self, name: str, message: str, suggestions: tuple[str, ...] = (), remedy: str = "") -> None:
        self.name = name
        self.suggestions = suggestions
        """The nearest names, at most five, best first."""
        meant = ", ".join(f"'{one}'" for one in suggestions)
        super().__init__(" ".join(filter(None, [message, f"Did you mean {meant}?" if meant else "", remedy])))


class Listed(NamedTuple):
    """One file on the shelf."""

    name: str
    """What its key `name` says; the file's own name when it cannot be read."""
    file: Path
    source: Source
    description: str
    hidden_by: Path | None
    """The file of the same name that is found in its place."""
    problems: tuple[Problem, ...]
    """What is wrong with its shape."""
    rivals: tuple[Path, ...] = ()
    """Other files of the same name on the same level; none of them can be found by it."""

    @property
    def clash(self) -> str:
        """What is wrong with its name, where it has rivals."""
        names = " and ".join(_shown(path) for path in sorted((self.file, *self.rivals)))
        many = "Two" if len(self.rivals) == 1 else str(len(self.rivals) + 1)
        return f"{many} {self.source} workflows are named '{self.name}': {names}. Rename all but one."


def is_path(text: str) -> bool:
    """Whether a text that says which workflow is a path: it has a slash, or ends as workflow files do."""
    return "/" in text or "\\" in text or text.endswith(SUFFIXES)


class WorkflowShelf:
    """The folders that workflow files are looked for in."""

    def __init__(
        self, project: Path | None, user: Path | None = None, builtin: Path | None = SHIPPED
    ) -> None:
        """Each is a folder of files; one that is not there holds none."""
        self.levels: tuple[tuple[Source, Path | None], ...] = (
            ("project", project), ("user", user), ("builtin", builtin),
        )  # fmt: skip
        self._read: dict[Path, tuple[tuple[int, int], Read]] = {}

    def all(self) -> list[Listed]:
        """Every file, the level that is found first at the top."""
        found: list[Listed] = []
        first: dict[str, Path] = {}
        for source, folder in self.levels:
            here: dict[str, list[Path]] = {}
            reads: list[tuple[str, Path, Read]] = []
            for path in files_of(folder):
                read = self.load(path)
                spec = read.partial
                name = spec.name if spec is not None and spec.name else path.stem
                here.setdefault(name, []).append(path)
                reads.append((name, path, read))
            for name, path, read in reads:
                description = read.partial.description if read.partial is not None else ""
                rivals = tuple(one for one in here[name] if one != path)
                hidden = first.get(name)
                found.append(Listed(name, path, source, description, hidden, read.problems, rivals))
            for name, paths in here.items():
                first.setdefault(name, paths[0])
        return found

    def names(self) -> list[str]:
        """The names workflows go by, also those that two of them do."""
        return list(dict.fromkeys(one.name for one in self.all() if one.hidden_by is None))

    def find(self, name: str, base: Path) -> Path:
        """The file of a name, or at a path that starts from the folder `base`; of two files of one name on
        one level neither is chosen, and the error names both."""
        if is_path(name):
            path = (base / Path(name).expanduser()).absolute()
            if path.is_file():
                return path
            there = [*self.names(), *(one.name for one in files_of(path.parent))]
            meant = Nearest().of(Path(name).name, there)
            raise WorkflowNotFound(name, f"There is no workflow file '{path}'.", meant)
        listed = [one for one in self.all() if one.hidden_by is None]
        for one in listed:
            if one.name == name:
                if one.rivals:
                    raise ConfigurationError(one.clash)
                return one.file
        names = dict.fromkeys(one.name for one in listed)
        own = self.levels[0][1]
        where = f"By name they are found in {_shown(own)}, elsewhere by their path. " if own else ""
        raise WorkflowNotFound(
            name, f"There is no workflow '{name}'.", Nearest().of(name, names),
            f"{where}See: detent workflow list",
        )  # fmt: skip

    def load(self, path: Path) -> Read:
        """A file, read; read again only when it has changed."""
        shown = _shown(path)
        try:
            there = path.stat()
            stamp = (there.st_mtime_ns, there.st_size)
            before = self._read.get(path)
            if before is not None and before[0] == stamp:
                return before[1]
            with path.open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except OSError as error:
            message = f"The file cannot be read: {error.strerror or error}."
            return Read(None, (Problem("E010", message, Place(shown, 1)),))
        read = read_workflow(raw, shown, folder=path.parent)
        steps = read.partial.every_step() if read.partial is not None else ()
        prompts = any(step.config.prompt_file is not None for step in steps)
        # What a file names beside itself may change without it.
        if not prompts and not any(problem.code == "E020" for problem in read.problems):
            self._read[path] = (stamp, read)
        return read

    def spec(self, name: str, base: Path) -> WorkflowSpec:
        """The workflow of a name or path; `DocumentError` with all problems when it cannot be used."""
        path = self.find(name, base)
        read = self.load(path)
        if read.spec is None:
            raise DocumentError(f"Workflow file {_shown(path)}", read.problems)
        return read.spec

    def finder(self, base: Path) -> Callable[[str], WorkflowSpec]:
        """What `check_workflow` asks for other workflows, for a file in the folder `base`."""
        return lambda name: self.spec(name, base)


def files_of(folder: Path | None) -> list[Path]:
    """The workflow files of a folder, by name."""
    if folder is None:
        return []
    try:
        there = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in there if path.suffix in SUFFIXES and path.is_file()]


def _shown(path: Path) -> str:
    """A file as people know it: from where they are, if it is below."""
    try:
        return path.absolute().relative_to(Path.cwd()).as_posix()
    except (OSError, ValueError):
        return path.as_posix()
