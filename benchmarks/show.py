"""What a light show costs and is worth: time by state, effects on beats, and the power of its judge.

Songs are the generated ones, whose beats are known. Effects are held to two grids: the beats that were
planned on, and the true ones. A show on a grid that is late as a whole scores full marks on the first alone.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

NEAR_S = 0.02
"""How far from a beat an effect may start to be on it."""
STATES = ("measured", "planned", "validated", "implemented", "judged", "written", "drawn")
SONGS_FOR_POWER = 300


def main(quick: bool = False) -> None:
    """Print the tables."""
    print("\nlight shows: time over the song's length, and effects that start on a beat (within 20 ms)")
    with tempfile.TemporaryDirectory() as folder:
        for line in _shows(Path(folder), quick):
            print(line, flush=True)
    print("\nlight shows: planted faults that the judge catches, with the category or code named")
    for line in power(60 if quick else SONGS_FOR_POWER):
        print(line, flush=True)


def _shows(folder: Path, quick: bool) -> Iterator[str]:
    from detent.apps.choreography.audio.synthetic import SUITE, write_song

    yield f"  {'song':14}{''.join(f'{state:>13}' for state in STATES)}{'planned':>10}{'true':>8}"
    rows = []
    for spec in SUITE[:3] if quick else SUITE:
        path = folder / f"{spec.name.replace(' ', '-')}.wav"
        known = write_song(spec, path)
        times, planned, true = _show(path, [float(beat) for beat in known.beats_s])
        rows.append((times, planned, true))
        cells = "".join(f"{times[state]:13.4f}" for state in STATES)
        yield f"  {spec.name:14}{cells}{planned:10.3f}{true:8.3f}"
    total = mean(sum(times.values()) for times, _, _ in rows)
    planned, true = mean(row[1] for row in rows), mean(row[2] for row in rows)
    yield f"  all: {total:.4f} of the length (aim 0.1); on planned beats {planned:.3f}, true ones {true:.3f}"


def _show(path: Path, beats: list[float]) -> tuple[dict[str, float], float, float]:
    """Time of each state over the song's length, and the shares of effects on planned and true beats."""
    from detent.apps.choreography import parts, picture
    from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan
    from detent.apps.choreography.export import sequence_of
    from detent.apps.choreography.request import new_request, rig_of, song_of, stage_of
    from detent.apps.choreography.settings import JobConfig
    from detent.apps.choreography.show.xsq_reader import read

    times: dict[str, float] = {}

    def timed(state: str, work: Any, *args: Any) -> Any:
        began = time.perf_counter()
        made = work(*args)
        times[state] = time.perf_counter() - began
        return made

    def measured() -> dict[str, Any]:
        from detent.apps.choreography.audio.analysis import analyse

        request = new_request(JobConfig(), path, folder=path.parent, analyser="builtin")
        return {**request, "audio": analyse(path, analyser="builtin")}

    request = timed("measured", measured)
    plan = timed("planned", parts.plan, request, [], None)
    timed("validated", parts.check, request, plan)
    made = timed("implemented", parts.expand, request, plan, [], None)
    evaluation = timed("judged", parts.evaluate, request, plan, made)
    values = AgentPlan.model_validate(plan), AgentImplementation.model_validate(made)
    sequence, _ = timed("written", sequence_of, request, *values)
    timed("drawn", lambda: picture.png(
        request["audio"], *values, evaluation, stage_of(request), rig_of(request), status="success"
    ))  # fmt: skip
    song = song_of(request)
    starts = [effect.start_ms / 1000 for effect in _effects(read(sequence))]
    grids = [sorted({*song.beats_s, *song.bars_s}), beats]
    shares = [sum(_near(start, grid) for start in starts) / len(starts) for grid in grids]
    return {state: seconds / song.duration_s for state, seconds in times.items()}, shares[0], shares[1]


def _effects(sequence: Any) -> Iterator[Any]:
    for layers in sequence.models.values():
        for layer in layers:
            yield from layer


def _near(start: float, grid: list[float]) -> bool:
    from bisect import bisect

    place = bisect(grid, start)
    return any(abs(start - beat) <= NEAR_S for beat in grid[max(place - 1, 0) : place + 1])


def power(count: int) -> Iterator[str]:
    """The share of songs in which each planted fault fails the show, and is named."""
    from detent.apps.choreography.domain.implementer import implement
    from detent.apps.choreography.domain.judge import judge
    from detent.apps.choreography.domain.planner import plan_show
    from detent.apps.choreography.domain.planted import FAULTS
    from detent.apps.choreography.domain.rubric import rubric
    from detent.apps.choreography.domain.stage import Stage
    from tests.apps.choreography.domain.songs import varied_song

    stage = Stage()
    dice = random.Random(1)
    shows = []
    for _ in range(count):
        song = varied_song(dice)
        plan = plan_show(song, stage)
        shows.append((song, plan, implement(song, plan, stage)[0]))
    for fault in FAULTS:
        caught = 0
        for song, plan, made in shows:
            wrong_plan, wrong = fault.plant(song, plan, made, stage)
            evaluation = judge(song, wrong_plan, wrong, stage)
            codes = rubric(stage).failures_of(None, wrong_plan.to_plain(), wrong.to_plain())
            named = [*codes, *(score.category for score in evaluation.category_scores if score.score < 60)]
            caught += (bool(codes) or not evaluation.passes()) and fault.expected in named
        yield f"  {fault.name:44}{caught:>5} of {count}   {caught / count:6.1%}   {fault.expected}"
