"""A show whose process is killed at one exact commit."""

from __future__ import annotations

from pathlib import Path

from detent.apps.choreography.flow import show_flow
from detent.apps.choreography.job import Job
from detent.runtime.settings import Settings
from detent.testing.crash import CrashPoints
from detent.testing.workload import Planned, Workload
from detent.testing.world import World

STRICT = {"agent": {"success_threshold": 99.9, "max_iterations": 2}}
"""No plan passes, so that the ways back are taken too."""


def settings_in(folder: Path, *, strict: bool = False) -> Settings:
    """Settings whose store is in a folder."""
    own = {"choreography": STRICT} if strict else {}
    return Settings(folder, values={"store": f"sqlite:{folder / 'store.db'}", **own})


def show(world: World, crash: CrashPoints) -> Workload:
    """The show of the song in the folder above the world's."""
    folder = world.path.parent
    job = Job.of(
        settings_in(folder, strict=(folder / "strict").exists()), folder / "song.wav", out=folder / "out",
        analyser="builtin",
    )  # fmt: skip
    flow = show_flow(job.config, job.settings)
    return Workload([flow], lambda number: Planned(flow.name, job.data, job.budget))
