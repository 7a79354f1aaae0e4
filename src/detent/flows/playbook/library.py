"""The playbooks of a project: finds their folders and makes flows of them, with the general functions, their
own modules and the settings.

`lookup` finds files beside the playbook, then in the project's folder; `write_file` writes into the project's
folder; `send_email` goes where the heading `mail` of the settings says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.adapters.mail.reply import rendered
from detent.adapters.mail.send_email import EmailSender, send_email_tool
from detent.adapters.mail.sink import MailSink
from detent.adapters.project.lookup import LookupTables, lookup_tool
from detent.adapters.project.text_files import TextFiles, write_file_tool
from detent.authoring.document import file_bytes
from detent.authoring.problem import DocumentError, Problem
from detent.engine.tools import Tool, tools_of
from detent.flows.playbook.checks import check_playbook, redirect_of
from detent.flows.playbook.flow import PlaybookFlow, playbook_flow
from detent.flows.playbook.folder import INSTRUCTIONS, MANIFEST, PlaybookFolder
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.flows.playbook.registry import Load, imported, reachable
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.policy import USUAL, RetryPolicy
from detent.runtime.key_uses import check_keys
from detent.runtime.plugs import Checked, Definitions, Drawing
from detent.runtime.project_files import ProjectFiles
from detent.runtime.settings import FILES, Settings, SettingsError

if TYPE_CHECKING:
    from detent.adapters.mail.settings import MailSettings
    from detent.dispatch.dispatcher import DispatchSettings
    from detent.engine.flow import Flow
    from detent.flows.playbook.trial import StepTrial

HOME = "playbooks"
"""The folder of a project in which playbooks are found by name."""
SENDER = "Playbook <playbook@detent.example>"
"""Sender of mail to an outbox folder unless `mail.from` names another."""
OUTBOX = "mail/outbox"

Wrap = Callable[[Tool], Tool]


class Playbooks(Definitions):
    """Playbook folders of one project."""

    def claims(self, path: Path) -> bool:
        """Whether a path is a folder of step files, valid or not."""
        return path.is_dir() and is_playbook(path)

    def find(self, target: str) -> Path:
        """The folder at a path, or of a name under `playbooks/`."""
        if ":" in target:
            raise ConfigurationError(f"The path of a playbook has no colon: {target}")
        return find_playbook(target, Path.cwd())

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """The flow of a folder; `DocumentError` lists every problem."""
        if (reason := _belongs_to_application(path)) is not None:
            raise ConfigurationError(reason)
        return [playbook_of(self.settings, path, tools=self.project.served())]

    def paths(self, *, shipped: bool = True) -> list[Path]:
        """The playbooks in the project's folder and under `playbooks/`, right or wrong; not those of
        applications."""
        folders = (self.settings.folder, self.settings.folder / HOME)
        inside = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
        return [
            path
            for path in inside
            if not path.name.startswith(".") and self.claims(path) and _belongs_to_application(path) is None
        ]

    def all(self, tell: Callable[[str], None]) -> Iterator[tuple[list[Flow], bool]]:
        """The flows of those playbooks; `tell` reports broken ones."""
        for path in self.paths():
            try:
                yield self.flows(path), False
            except DocumentError as error:
                tell(f"The steps of this playbook are left out. {error}")

    def step_names(self) -> Iterator[str]:
        """The names by which settings may configure the steps of those playbooks."""
        for path in self.paths():
            playbook, _ = read_playbook(path)
            for step in playbook.steps:
                yield from (step, f"{playbook.manifest.name}/{step}")

    def check(self, paths: Sequence[Path]) -> list[Checked]:
        """Check every file of each folder."""
        results: list[Checked] = []
        for path in paths:
            playbook, _ = read_playbook(path)
            if (reason := _belongs_to_application(path)) is not None:
                results.append(Checked(path.name, [Problem("", reason)], len(playbook.steps)))
                continue
            problems = problems_of(self.settings, path, tools=self.project.served())
            if not any(problem.severity == "error" for problem in problems):
                problems += self.project.model_problems(self.flows(path)[0])
            name = playbook.manifest.name or path.name
            results.append(
                Checked(name, problems, len(playbook.steps), _display_path(path, self.settings.folder))
            )
        return results

    def draw(self, path: Path, drawing: Drawing) -> str:
        """A drawing of a playbook; handlers and tools that an application supplies may be missing."""
        from detent.flows.playbook.drawing import draw_playbook

        try:
            playbook = playbook_of(self.settings, path, tools=self.project.served()).playbook
        except DocumentError as error:
            if any(problem.code not in ("P14", "P16") for problem in error.problems):
                raise
            playbook, _ = read_playbook(path)
        return draw_playbook(playbook, drawing)

    async def try_step(
        self, flow: Flow, step: str, data: Mapping[str, Any], dispatch: DispatchSettings
    ) -> StepTrial:
        """Perform one step, named by its id, an alias or the beginning of its id."""
        from detent.flows.playbook.trial import step_alone

        assert isinstance(flow, PlaybookFlow)
        return await step_alone(flow, step, data, dispatch=dispatch)


# -- finding ------------------------------------------------------------------------------------------------


def find_playbook(reference: str, folder: Path) -> Path:
    """The playbook a command line names: a path from the working folder, or a name under `playbooks/`."""
    named = folder / HOME
    path = Path(reference).expanduser() if reference else Path()
    if reference:
        matches = [match for match in (folder / path, named / path) if match.is_dir()]
        if matches:
            return next((match for match in matches if is_playbook(match)), matches[0])
        if (folder / path).is_file():
            raise ConfigurationError(f"{reference} is a file; a playbook is a folder of step files.")
    known = sorted(entry.name for entry in named.iterdir() if entry.is_dir()) if named.is_dir() else []
    listed = f" Under {HOME}/: {', '.join(known)}." if known else ""
    raise ConfigurationError(
        f"There is no playbook '{reference}': neither a folder nor a name under {HOME}/."
        f"{nearest(reference, known)}{listed} Start one with: detent playbook new DIR"
    )


def _belongs_to_application(folder: Path) -> str | None:
    """What to do with a folder whose steps need the functions of the application of the same name; None for
    a playbook that stands by itself."""
    from detent.runtime.plugs import apps

    name = read_playbook(folder)[0].manifest.name
    if name not in {app.name for app in apps()}:
        return None
    return (
        f"{folder.name}/ belongs to the application '{name}', which brings the functions of its steps. "
        f"Work in the project's folder and name the application: detent check {name}"
    )


def _display_path(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def is_playbook(folder: Path) -> bool:
    """Whether a folder holds a playbook, valid or not."""
    place = PlaybookFolder.at(folder)
    if (place.root / MANIFEST).is_file() or (place.root / "steps").is_dir():
        return True
    return any(_begins_with_front_matter(path) for path in place.step_files())


def _begins_with_front_matter(path: Path) -> bool:
    try:
        return file_bytes(path, 16).lstrip(b"\xef\xbb\xbf").startswith(b"---")
    except OSError:
        return False


def home_of(folder: Path) -> Path:
    """The folder that contains a playbook; files beside the playbook's own belong to it."""
    root = PlaybookFolder.at(folder).root
    return root.parent if root.name == INSTRUCTIONS else root


# -- functions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class General:
    """The general functions, wired for one playbook."""

    tables: LookupTables
    files: TextFiles
    email: EmailSender

    @classmethod
    def of(
        cls,
        settings: Settings,
        folder: Path,
        *,
        name: str = "playbook",
        sends: bool = True,
        write: Path | None = None,
        sink: MailSink | None = None,
    ) -> General:
        """Wire them. Without `sends`, the mail settings are not read.

        `write` replaces the project's folder as the target of written files; `sink` replaces the mail sink.
        """
        home, project = home_of(folder), settings.folder
        place = PlaybookFolder.at(folder)
        target = write if write is not None else project
        protected = [
            place.steps,
            place.templates,
            place.sentences,
            place.root / MANIFEST,
            *(target / file for file in FILES),
        ]
        protected += [*home.glob("*.py"), *ProjectFiles(settings).guarded]
        files = TextFiles(target, (home, target, project), protected)
        out = mail_out(settings, sink) if sends else MailOut(SENDER, None, _outbox(project / OUTBOX))
        email = EmailSender(out.sink, out.sender, app=name, envelope_from=out.envelope_from)
        return cls(LookupTables(files), files, email)

    def tools(self) -> list[Tool]:
        """All of them."""
        return [lookup_tool(self.tables), write_file_tool(self.files), send_email_tool(self.email)]


@dataclass(frozen=True, slots=True)
class MailOut:
    """Sender and sink of outgoing mail."""

    sender: str
    envelope_from: str | None
    sink: MailSink


def mail_out(
    settings: Settings, sink: MailSink | None = None, environ: Mapping[str, str] | None = None
) -> MailOut:
    """The settings for outgoing mail, from the heading `mail`.

    Raises:
        SettingsError: the heading is wrong; all problems are listed.
    """
    from detent.adapters.mail.settings import sink_for

    environ = os.environ if environ is None else environ
    mail = _mail_settings(settings)
    by_smtp = sink is None and mail.sink == "smtp"
    if by_smtp and "from" not in settings.section("mail"):
        message = "'mail.from' must say who sends by SMTP."
        raise SettingsError("The settings", [settings.problem(("mail", "from"), message)])
    if by_smtp:
        check_keys(settings, "mail", environ=environ)
    if sink is None:
        base = settings.base("mail", "outbox")
        sink = sink_for(mail, lambda path: base / Path(path).expanduser(), environ, sent=False)
    sender = mail.from_ if "from" in settings.section("mail") else SENDER
    return MailOut(sender, mail.smtp.envelope_from, sink)


def _mail_settings(settings: Settings) -> MailSettings:
    from pydantic import ValidationError

    from detent.adapters.mail.settings import MailSettings
    from detent.authoring.heading import heading_problems

    written = {key: value for key, value in settings.section("mail").items() if value is not None}
    try:
        return MailSettings.model_validate(written)
    except ValidationError as error:
        problems = heading_problems(error, MailSettings, "mail", lambda keys: settings.place(*keys))
        raise SettingsError("The settings", problems) from None


def _outbox(folder: Path) -> MailSink:
    from detent.adapters.mail.outbox import Outbox

    return Outbox(folder)


# -- making -------------------------------------------------------------------------------------------------


def playbook_of(
    settings: Settings,
    folder: Path,
    *,
    tools: Iterable[Tool] = (),
    wrap: Wrap | None = None,
    overlays: Sequence[str | Path] = (),
    agents: Iterable[str] = (),
    write: Path | None = None,
    sink: MailSink | None = None,
    retry: RetryPolicy = USUAL,
    strict: bool = False,
) -> PlaybookFlow:
    """The flow of a playbook's folder; `DocumentError` lists every problem.

    A function of the playbook's own modules takes precedence over one of `tools`, and that over a general one
    of the same name. `wrap` may wrap each function. `agents` are further steps, besides those that the
    settings give to agents. `write` and `sink` are as for `General.of`.
    """
    playbook, _ = read_playbook(folder, overlays=overlays)
    general = General.of(
        settings, folder, name=playbook.manifest.name, sends="send_email" in _used(playbook), write=write,
        sink=sink,
    )  # fmt: skip
    load = module_loader(settings, folder)
    known = _known(playbook, [*general.tools(), *tools], load)
    sends = known["send_email"].perform == general.email.send and "send_email" in _used(playbook)
    if wrap is not None:
        known = {name: wrap(tool) for name, tool in known.items()}
    try:
        flow = playbook_flow(
            folder,
            tools=known.values(),
            overlays=overlays,
            agents=[*_agents(settings, playbook), *agents],
            retry=retry,
            strict=strict,
            rendered={"send_email.body": rendered},
            load=load,
        )
    except DocumentError as error:
        raise DocumentError(error.subject, _from_here(error.problems, folder, settings.folder)) from error
    if sends:
        flow.needs.append(general.email)
    return flow


def problems_of(settings: Settings, folder: Path, *, tools: Iterable[Tool] = ()) -> list[Problem]:
    """Every problem of a playbook's folder, with paths relative to the working folder."""
    playbook, _ = read_playbook(folder)
    load = module_loader(settings, folder)
    known = _known(playbook, [*General.of(settings, folder, sends=False).tools(), *tools], load)
    problems = check_playbook(folder, tools=known, agents=_agents(settings, playbook), load=load)
    return _from_here(problems, folder, settings.folder)


def module_loader(settings: Settings, folder: Path) -> Load:
    """A loader for the modules of a playbook that the user trusts, with its project or by its own folder."""
    from detent.runtime.trust import Trust

    home = home_of(folder).resolve()
    project = Trust.of(settings)
    covered = any(file.is_relative_to(home) for file in project.files.files.values())
    own = Trust.of_folder(home, project.environ)
    if project.everything or own.always or own.state == "trusted" or (covered and project.ok):
        return imported
    return lambda name: (
        f"module '{name}' is not loaded: the playbook is not trusted. To look and trust: detent trust {home}"
    )


def _known(playbook: Playbook, tools: Iterable[Tool], load: Load) -> dict[str, Tool]:
    """Functions by name, the playbook's own first; a module that cannot be imported is reported later."""
    known = {tool.name: tool for tool in tools}
    if playbook.manifest.tools:
        reachable(home_of(playbook.loader.folder.root))
    for name in playbook.manifest.tools:
        module = load(name)
        if not isinstance(module, str):
            known |= {tool.name: tool for tool in tools_of(module)}
    return known


def _used(playbook: Playbook) -> set[str]:
    """Functions that a step may use, and the redirect's."""
    used = {function.name for step in playbook.steps.values() for function in step.available_functions}
    redirect = redirect_of(playbook.manifest)
    return used | ({redirect.function} if redirect is not None else set())


def _agents(settings: Settings, playbook: Playbook) -> list[str]:
    """Steps that the settings give to agents."""
    steps: list[str] = []
    for key, config in settings.section("steps").items():
        flow, _, step = str(key).rpartition("/")
        if (
            flow in ("", playbook.manifest.name)
            and isinstance(config, Mapping)
            and config.get("mode") == "agent"
        ):
            steps.append(step)
    return steps


def _from_here(problems: Iterable[Problem], folder: Path, base: Path) -> list[Problem]:
    """Problems with paths relative to the working folder, for files below it."""
    above = PlaybookFolder.at(folder).root.parent
    relative: list[Problem] = []
    for problem in problems:
        path = above / problem.place.file
        for candidate, root in ((path, base), (path.resolve(), base.resolve())):
            if candidate.is_relative_to(root):
                shown = candidate.relative_to(root).as_posix()
                problem = problem._replace(place=problem.place._replace(file=shown))
                break
        relative.append(problem)
    return relative
