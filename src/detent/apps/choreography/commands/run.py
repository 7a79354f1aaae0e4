"""`run choreography`: the whole way from a song to a sequence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.apps.choreography.app import APP
from detent.cli.options import NewId, Options, takes

if TYPE_CHECKING:
    from detent.apps.choreography.job import Job
    from detent.authoring.problem import Problem
    from detent.cli.workspace import Workspace
    from detent.engine.engine import Engine
    from detent.engine.ports import Tape
    from detent.kernel.run import Run

STEPS = ("plan", "validate", "implement", "judge")
"""Steps that an agent may perform."""

SongFile = Annotated[Path | None, typer.Argument(metavar="[SONG]", help="A song: wav, flac, ogg or mp3.")]
Analyser = Annotated[
    str, typer.Option("--analyser", metavar="NAME", help="auto, builtin or librosa (if it is installed).")
]
Bpm = Annotated[
    float | None,
    typer.Option("--bpm", metavar="N", help="The tempo, where the measured one is half or double."),
]
Fixtures = Annotated[
    Path | None, typer.Option("--fixtures", metavar="FILE", help="The rig: moving heads, from left to right.")
]
Templates = Annotated[
    list[Path] | None,
    typer.Option("--templates", metavar="DIR", help="Templates of your own. May be repeated."),
]


@takes("deterministic", "record", "replay", "detach", "json", "quiet", "store", "config", "log")
async def run(
    options: Options,
    song: SongFile = None,
    audio: Annotated[Path | None, typer.Option("--audio", metavar="FILE", help="The same as SONG.")] = None,
    xsq: Annotated[
        Path | None, typer.Option("--xsq", metavar="FILE", help="A sequence to add the show to.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR|FILE.xsq", help="Where the show is written.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a sequence of somebody else.")] = False,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Name of the show.")
    ] = None,
    fixtures: Fixtures = None,
    layout: Annotated[
        Path | None,
        typer.Option("--layout", metavar="FILE", help="xlights_rgbeffects.xml, to check the rig's names."),
    ] = None,
    media: Annotated[
        str | None, typer.Option("--media", metavar="PATH", help="The song as the show computer sees it.")
    ] = None,
    templates: Templates = None,
    max_iterations: Annotated[
        int | None, typer.Option("--max-iterations", metavar="N", min=1, help="Attempts in all.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", metavar="N", min=0, max=100, help="Score that passes.")
    ] = None,
    token_budget: Annotated[
        int | None, typer.Option("--token-budget", metavar="N", min=1, help="Tokens that agents may use.")
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="STEP=MODE", help="agent or deterministic. May be repeated."),
    ] = None,
    autonomy: Annotated[
        list[str] | None,
        typer.Option("--autonomy", metavar="STEP=LEVEL", help="How far an agent is trusted."),
    ] = None,
    frame_ms: Annotated[
        int | None, typer.Option("--frame-ms", metavar="N", help="Length of a frame: 20, 25 or 50 ms.")
    ] = None,
    bpm: Bpm = None,
    analyser: Analyser = "auto",
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw no picture of the show.")] = False,
    id_: NewId = None,
) -> int:
    """Plan, check and write a light show for a song.

    Files go to a folder of the show's name; --out FILE.xsq puts the sequence there and the rest beside it.
    Exit code 1: no show passed; the best attempt is written all the same.
    """
    from detent.apps.choreography.job import Job, files_given
    from detent.cli.record import exit_code, tape
    from detent.cli.values import read_step_settings
    from detent.kernel.errors import ConfigurationError, nearest
    from detent.runtime.settings import SettingsError

    if (song is None) == (audio is None):
        raise ConfigurationError("Name one song: detent run choreography SONG, or --audio FILE.")
    workspace: Workspace | None = None
    known: list[Problem] = []
    try:
        workspace = options.workspace()
        settings = workspace.settings
    except SettingsError as error:
        if error.settings is None:
            raise
        settings, known = error.settings, error.problems
    changes: dict[tuple[str, ...], Any] = {
        ("project_name",): project,
        **files_given(fixtures, templates),
        ("frame_ms",): frame_ms,
        ("agent", "max_iterations"): max_iterations,
        ("agent", "success_threshold"): threshold,
        ("agent", "token_budget"): token_budget,
    }
    performers = read_step_settings(mode, autonomy, example="plan", scope=f"{APP.name}/")
    for _, step, _ in performers:
        if (name := step.removeprefix(f"{APP.name}/")) not in STEPS:
            raise ConfigurationError(
                f"A show has no step '{name}'.{nearest(name, STEPS)} It has: {', '.join(STEPS)}."
            )
    settings = settings.over(performers)
    job = Job.of(
        settings,
        Path(song or audio or ""),
        known=known,
        changes={keys: value for keys, value in changes.items() if value is not None},
        base=xsq,
        layout=layout,
        media=media,
        analyser=analyser,
        bpm=bpm,
        out=out,
        force=force,
        picture=not no_picture,
    )
    assert workspace is not None  # its problems were raised with the job's
    workspace.settings = settings
    if not job.config.agent.use_state_machine:
        wanted = {
            "--record": options.record,
            "--replay": options.replay,
            "--detach": options.detach,
            "--id": id_,
        }
        for option, value in {**wanted, "--mode": mode, "--autonomy": autonomy}.items():
            if value:
                raise ConfigurationError(
                    f"{option} needs a run, and there is none while choreography.agent.use_state_machine is "
                    f"false."
                )
        return await _loop(options, job)
    silent = options.json or options.quiet
    with tape(options, workspace.settings, APP.flows, json=silent) as recording:
        return exit_code(recording, await _drive(options, workspace, job, recording, id_))


async def _drive(
    options: Options, workspace: Workspace, job: Job, recording: Tape | None, run_id: str | None
) -> int:
    """Start the run of a job, drive it to its end and show what came of it."""
    from detent.apps.choreography.commands.ending import ShowKind, exit_code
    from detent.apps.choreography.export import result_of_show
    from detent.apps.choreography.flow import show_flow
    from detent.cli import unused_agents
    from detent.cli.drive import drive
    from detent.cli.output import paint, say
    from detent.runtime.wiring import engine_for, store_for

    store = store_for(job.settings)
    flow = show_flow(job.config, job.settings, store)
    others = [source.flow for name, source in workspace.catalog.all().items() if name != flow.name]
    song = Path(job.request["audio_path"]).name
    started: list[str] = []
    engine = engine_for(job.settings, [flow, *others], tape=recording, store=store)
    with unused_agents.telling(workspace.command, engine):
        async with engine:
            await unused_agents.check(job.settings, engine, [flow], forced=options.deterministic)

            async def begin() -> str:
                begun = await engine.start(
                    flow, job.data, run_id=run_id, budget=job.budget,
                    force_deterministic=options.deterministic, drive=not options.detach,
                )  # fmt: skip
                started.append(begun)
                if not (options.json or options.quiet or options.detach):
                    say(f"{paint(flow.name, bold=True)}  {song:<40} run {begun}")
                return begun

            code = await drive(
                workspace, engine, begin, options, flow=flow.name, kind=ShowKind(), plain=_plain
            )
            run = await engine.get(started[0])
            return exit_code(await result_of_show(engine, run.id)) if run.status.is_end else code


async def _plain(engine: Engine, run: Run) -> Any:
    """A show as `--json` prints it."""
    from detent.apps.choreography.export import result_of_show

    return (await result_of_show(engine, run.id)).to_plain()


async def _loop(options: Options, job: Job) -> int:
    """Make the show in a plain loop: nothing is kept, and nothing can be resumed."""
    from detent.apps.choreography.commands.ending import exit_code, tell_result
    from detent.apps.choreography.orchestrator import looped
    from detent.apps.choreography.parts import PARTS
    from detent.cli.output import paint, say
    from detent.flows.refine.run_lines import LoopLines

    if options.json or options.quiet:
        result = await looped(job)
    else:
        say(f"{paint(APP.name, bold=True)}  {Path(job.request['audio_path']).name}")
        with LoopLines(PARTS, job.config.agent.max_iterations) as lines:
            result = await looped(job, [lines], on_progress=lines.on_progress)
    tell_result(result, options)
    return exit_code(result)
