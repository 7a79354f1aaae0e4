"""The commands of the choreographer: `choreography …`. Making a whole show is in `run`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.choreography.commands.run import Analyser, Bpm, Fixtures, Templates
from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
    from detent.authoring.problem import Problem

EVAL_BELOW = 4
"""Exit code of `judge` unless the show passes."""

_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def _group(help: str) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None, context_settings=_CONTEXT)


group = _group("Light shows for songs, part by part.")
templates = _group("The library of templates.")
group.add_typer(templates, name="templates")

SongFile = Annotated[Path, typer.Argument(metavar="SONG", help="A song: wav, flac, ogg or mp3.")]
Audio = Annotated[Path, typer.Option("--audio", metavar="FILE", help="The song, or its audio.json.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan.json.")]
ImplementationFile = Annotated[Path, typer.Argument(metavar="IMPL", help="An implementation.json.")]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="Where it is written.")]


# -- single parts -------------------------------------------------------------------------------------------


@group.command("analyze")
@takes("json", "config")
def analyze(
    options: Options,
    song: SongFile,
    analyser: Analyser = "auto",
    bpm: Bpm = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write audio.json there.")] = None,
) -> None:
    """Measure a song: tempo, bars, sections, energy."""
    from detent.apps.choreography.domain.song import Song
    from detent.apps.choreography.export import text
    from detent.apps.choreography.output import check_writable
    from detent.cli.output import fields, say, say_json, table, warn

    if out is not None:
        check_writable(out)
    audio = _request(options, song, analyser=analyser, bpm=bpm)["audio"]
    if out is not None:
        _write(out, text(audio))
        warn(f"Written to {out}.")
    if options.json:
        say_json(audio)
        return
    measured = Song.of(audio)
    others = ", ".join(f"{row['bpm']:.1f}" for row in audio["tempo_candidates"])
    fields(
        [
            ("length", f"{audio['duration_s']:.1f} s"),
            ("tempo", f"{audio['tempo_bpm']:.1f} BPM" + (f"   or {others} (--bpm)" if others else "")),
            ("bars", f"{measured.bars} of {audio['time_signature']['time_signature']}"),
            ("key", measured.key),
            ("analyser", audio["analyser"]),
        ]
    )
    table(
        ["SECTION", "BARS", "LABEL", "ENERGY"],
        [
            [
                section.section_id,
                f"{section.start_bar}-{section.end_bar}",
                section.label,
                f"{section.energy:.0f}",
            ]
            for section in measured.sections
        ],
        right=[3],
    )
    for warning in audio["warnings"]:
        say(f"warning: {warning}")


@group.command("validate")
@takes("json", "config")
def validate(
    options: Options, plan: PlanFile, audio: Audio, fixtures: Fixtures = None, templates: Templates = None
) -> int:
    """Check a plan against its song: every error and warning."""
    from detent.apps.choreography.parts import check
    from detent.cli.output import clean, say, say_json
    from detent.insight.formatting import count

    report = check(_request(options, audio, fixtures, templates), _plan(plan).to_plain())
    if options.json:
        say_json(report.to_plain())
    else:
        for issue in report.issues:
            place = f', section "{issue.section_name}"' if issue.section_name else ""
            say(clean(f"{issue.severity}: {issue.rule}{place}: {issue.message}"))
        warnings = sum(issue.severity == "warning" for issue in report.issues)
        say(f"{count(len(report.errors), 'error')}, {count(warnings, 'warning')}")
    return 0 if report.passed else 2


@group.command("implement")
@takes("config", "quiet")
def implement(
    options: Options,
    plan: PlanFile,
    audio: Audio,
    out: Out,
    fixtures: Fixtures = None,
    templates: Templates = None,
) -> None:
    """Expand a plan onto the heads, as a run does."""
    from detent.apps.choreography.export import text
    from detent.apps.choreography.output import check_writable
    from detent.apps.choreography.parts import expand
    from detent.cli.output import say

    check_writable(out)
    implementation = expand(_request(options, audio, fixtures, templates), _plan(plan).to_plain(), [], None)
    _write(out, text(implementation))
    if not options.quiet:
        say(f"{out}: {len(implementation['sections'])} parts")


@group.command("judge")
@takes("json", "config")
def judge(
    options: Options,
    plan: PlanFile,
    implementation: ImplementationFile,
    audio: Audio,
    fixtures: Fixtures = None,
    templates: Templates = None,
) -> int:
    """Judge a show by the rubric. Exit code 4 unless it passes."""
    from detent.apps.choreography.parts import evaluate, rubric_of
    from detent.apps.choreography.settings import job_config
    from detent.cli.output import clean, say, say_json, table

    request = _request(options, audio, fixtures, templates)
    planned, made = _plan(plan), _implementation(implementation)
    _check_match(planned, made)
    values = planned.to_plain(), made.to_plain()
    failures = rubric_of(request).failures_of(request, *values)
    evaluation = replace(evaluate(request, *values), automatic_failures=failures)
    limit = job_config(options.workspace(looks=True).settings).agent.success_threshold
    passes = evaluation.passes(limit)
    if options.json:
        say_json(evaluation.to_plain(limit))
    else:
        table(
            ["CATEGORY", "SCORE"],
            [[score.category, f"{score.score:.1f}"] for score in evaluation.category_scores],
            right=[1],
        )
        say(f"overall {evaluation.overall_score:.1f}: {'passes' if passes else 'does not pass'}")
        for code in evaluation.automatic_failures:
            say(f"automatic failure: {code}")
        for line in evaluation.actionable_feedback:
            say(clean(f"  {line}"))
    return 0 if passes else EVAL_BELOW


@group.command("export")
@takes("quiet", "config")
def export(
    options: Options,
    implementation: ImplementationFile,
    audio: Audio,
    out: Out,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="The plan; plan.json beside IMPL by default."),
    ] = None,
    xsq: Annotated[
        Path | None, typer.Option("--xsq", metavar="FILE", help="A sequence to add it to.")
    ] = None,
    fixtures: Fixtures = None,
    templates: Templates = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a sequence of somebody else.")] = False,
) -> None:
    """Write an implementation as an xLights sequence."""
    from detent.apps.choreography.export import sequence_of
    from detent.apps.choreography.output import Output, check_writable
    from detent.cli.output import clean, say
    from detent.kernel.errors import ConfigurationError

    if out.suffix.lower() != ".xsq":
        raise ConfigurationError(f"--out {out}: a sequence ends in .xsq.")
    output = Output.of(out.stem, out, force=force)
    output.check_sequence()
    check_writable(out)
    request = _request(options, audio, fixtures, templates, base=xsq)
    beside = implementation.with_name("plan.json")
    if plan is None and not beside.exists():
        raise ConfigurationError(f"{beside} is not there; name the plan of this implementation with --plan.")
    planned, made = _plan(plan or beside), _implementation(implementation)
    _check_match(planned, made)
    content, warnings = sequence_of(request, planned, made)
    _write(out, content)
    if not options.quiet:
        for line in warnings:
            say(clean(f"warning: {line}"))
        say(f"{out}: {len(content):,} bytes")


@group.command("picture")
def picture(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="The result.json of a show.")], out: Out
) -> None:
    """Draw the picture of a show that was made, as .svg or .png."""
    from detent.apps.choreography.export import drawn_result
    from detent.cli.output import say
    from detent.kernel.errors import ConfigurationError

    kind = out.suffix.lower().lstrip(".")
    if kind not in ("svg", "png"):
        raise ConfigurationError(f"--out {out}: a picture ends in .svg or .png.")
    content = drawn_result(
        _read(result, "a result.json"), _read(result.with_name("audio.json"), "its audio.json"), kind
    )
    _write(out, content)
    say(f"{out}: {len(content):,} bytes")


@group.command("check")
@takes("json")
def check(
    options: Options,
    sequence: Annotated[Path, typer.Argument(metavar="FILE.xsq", help="An xLights sequence.")],
) -> int:
    """Check a sequence against the rules of the xLights loader: all problems at once."""
    from detent.apps.choreography.show.xsq_checker import check as problems_of

    return _print_problems(options, problems_of(_bytes(sequence), str(sequence)), f"{sequence}: no problems")


# -- templates ----------------------------------------------------------------------------------------------


@templates.command("list")
@takes("json", "format")
def list_templates(options: Options, folder: Templates = None) -> None:
    """List the templates: what each is for."""
    from detent.apps.choreography.domain.library import load_library

    rows = [
        {
            "id": template.template_id,
            "role": template.layer_role,
            "energy": "{:g}-{:g}".format(
                *(template.metadata.energy_range if template.metadata else (0, 100))
            ),
            "for": ", ".join(template.metadata.recommended_sections if template.metadata else ()),
            "description": template.metadata.description if template.metadata else "",
        }
        for template in load_library(*(folder or ())).values()
    ]
    columns = {
        "TEMPLATE": "id",
        "ROLE": "role",
        "ENERGY": "energy",
        "FOR": "for",
        "DESCRIPTION": "description",
    }
    options.print_rows(rows, columns)


@templates.command("show")
def show_template(
    template_id: Annotated[str, typer.Argument(metavar="ID", help="A template's id.")],
    folder: Templates = None,
) -> None:
    """Print a template as JSON."""
    from detent.apps.choreography.domain.library import load_library
    from detent.cli.output import say_json
    from detent.kernel.errors import ConfigurationError, nearest

    library = load_library(*(folder or ()))
    if template_id not in library:
        raise ConfigurationError(
            f"There is no template '{template_id}'.{nearest(template_id, library)} "
            f"List them with: detent choreography templates list"
        )
    say_json(library[template_id].to_plain())


@templates.command("check")
@takes("json")
def check_templates(
    options: Options, folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of templates.")]
) -> int:
    """Check a folder of templates: all problems at once, with file and line."""
    from detent.apps.choreography.domain.library import check_folder

    return _print_problems(options, check_folder(folder), f"{folder}: no problems")


# -- reading and writing ------------------------------------------------------------------------------------


def _request(
    options: Options,
    audio: Path,
    fixtures: Path | None = None,
    templates: list[Path] | None = None,
    **wishes: Any,
) -> dict[str, Any]:
    """A prepared request for a song, or for its analysis, by the settings of the project."""
    from detent.apps.choreography.job import request_for

    settings = options.workspace(looks=True).settings
    return request_for(settings, audio, fixtures=fixtures, templates=templates, **wishes)


def _plan(path: Path) -> AgentPlan:
    from detent.apps.choreography.domain.brief import parse_plan

    plan: AgentPlan = _parsed(path, "a plan", parse_plan)
    return plan


def _implementation(path: Path) -> AgentImplementation:
    from detent.apps.choreography.domain.brief import parse_implementation

    implementation: AgentImplementation = _parsed(path, "an implementation", parse_implementation)
    return implementation


def _check_match(plan: AgentPlan, implementation: AgentImplementation) -> None:
    """Raise `ConfigurationError` if an implementation carries out another plan."""
    from detent.kernel.errors import ConfigurationError

    for part in implementation.sections:
        section = plan.section(part.plan_section_name)
        if section is None:
            wrong = f"there is no section '{part.plan_section_name}' in the plan"
        elif part.template_id not in section.templates:
            wrong = f"section '{section.name}' has no template '{part.template_id}' in the plan"
        else:
            continue
        raise ConfigurationError(
            f"The implementation is of another plan: {wrong}. Make one of this plan with: detent "
            f"choreography implement PLAN --audio FILE --out FILE"
        )


def _parsed(path: Path, what: str, parse: Any) -> Any:
    from detent.kernel.errors import ConfigurationError

    try:
        return parse(_read(path, what))
    except ValueError as error:
        raise ConfigurationError(f"{path} is not {what}: {error}") from error


def _read(path: Path, what: str) -> Mapping[str, Any]:
    from detent.kernel.errors import ConfigurationError

    try:
        value = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON ({error}); {what} is needed.") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} holds no JSON object; {what} is needed.")
    return value


def _bytes(path: Path) -> bytes:
    from detent.authoring.document import file_bytes
    from detent.kernel.errors import ConfigurationError

    try:
        return file_bytes(path)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from error


def _write(out: Path, content: bytes) -> None:
    """Write a file as those of a show are written: whole, and its folder made first."""
    from detent.apps.choreography.output import write_file
    from detent.kernel.errors import ConfigurationError

    try:
        write_file(out, content)
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}.") from error


def _print_problems(options: Options, problems: list[Problem], fine: str) -> int:
    from detent.cli.output import clean, say, say_json

    if options.json:
        say_json([problem.to_plain() for problem in problems])
    elif not problems:
        say(fine)
    else:
        for problem in problems:
            say(clean(problem))
    return 2 if any(problem.severity == "error" for problem in problems) else 0
