"""`detent run choreography`: the whole way on the command line, with everything that can be wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Process

QUICK = ("--analyser", "builtin", "--no-picture")
FILES = {
    "song_detent_mh.xsq", "audio.json", "plan.json", "implementation.json", "evaluation.json", "result.json",
    "metrics.txt",
}  # fmt: skip
PICTURES = {"timeline.svg", "timeline.png"}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def tones(path: Path, *, rate: int = 22_050, seconds: float = 3, level: float = 0.5) -> None:
    """A short song, written with the library that reads it."""
    import numpy as np
    import soundfile

    time = np.arange(int(rate * seconds)) / rate
    soundfile.write(path, level * np.sin(2 * np.pi * 220 * time) * (time % 0.5 < 0.1), rate)


def repeat(song: Path, times: int) -> None:
    """Make a song so many times as long."""
    import numpy as np
    import soundfile

    samples, rate = soundfile.read(song, dtype="int16")
    soundfile.write(song, np.tile(samples, times), rate)


class TestTheWholeWay:
    """R-55"""

    def test_every_file_is_in_the_folder_of_the_show(self, studio, detent):
        ran = detent("run", "choreography", "song.wav", "--analyser", "builtin")
        assert ran.code == 0, ran.err
        assert names(studio / "song") == FILES | PICTURES
        lines = [line.split() for line in ran.lines[1:6]]
        assert [line[:3] for line in lines] == [
            ["✓", state, "deterministic"]
            for state in ("initialized", "planning", "validating", "implementing", "judging")
        ]
        assert "36 bars, 6 sections" in ran.out
        assert "attempt 1/3" in ran.out
        assert "succeeded" in ran.lines[6]
        for part in ("song/song_detent_mh.xsq", "song/timeline.png", "0 tokens"):
            assert part in ran.lines[6]
        assert ran.lines[7] == f"  detent show {ran.lines[0].split()[-1]}"

    def test_a_sequence_may_be_named_and_the_rest_lies_beside_it(self, studio, detent):
        ran = detent("run", "choreography", "--audio", "song.wav", *QUICK, "--out", "shows/night.xsq")
        assert ran.code == 0, ran.err
        assert names(studio / "shows") == {"night.xsq"}
        assert names(studio / "shows" / "night") == FILES - {"song_detent_mh.xsq"}

    def test_json_is_the_result_and_quiet_the_run(self, studio, detent):
        result = detent("run", "choreography", "song.wav", *QUICK, "--json").json
        assert (result["status"], len(result["files"])) == ("success", 14)
        ran = detent("run", "choreography", "song.wav", *QUICK, "--quiet", "--id", "r9")
        assert (ran.code, ran.out) == (0, "r9\n")

    @pytest.mark.parametrize("extra", [(), ("--json",)])
    def test_a_show_that_does_not_pass_is_written_all_the_same(self, studio, detent, extra):
        options = ("--threshold", "99.9", "--max-iterations", "1", *extra)
        ran = detent("run", "choreography", "song.wav", *QUICK, *options)
        assert ran.code == 1
        assert names(studio / "song") == FILES
        if extra:
            assert ran.json["status"] == "incomplete"
        else:
            assert "max_iterations" in ran.out
            assert "No show passed; the best attempt, 1, is written." in ran.out

    def test_without_the_state_machine_there_is_no_run(self, studio, detent):
        """R-38"""
        (studio / "detent.yaml").write_text("choreography: {agent: {use_state_machine: false}}\n")
        ran = detent("run", "choreography", "song.wav", *QUICK)
        assert ran.code == 0, ran.err
        assert names(studio / "song") == FILES
        assert detent("runs", "--json").json == {"runs": [], "next": None} or not detent("runs").out.count(
            "song"
        )
        refused = detent("run", "choreography", "song.wav", *QUICK, "--record", "tape.jsonl")
        assert (refused.code, "--record needs a run" in refused.err) == (2, True)
        lines = [line.split() for line in ran.lines]
        assert lines[0] == ["choreography", "song.wav"]
        states = ("initialized", "planning", "validating", "implementing", "judging")
        assert [line[:3] for line in lines[1:6]] == [["✓", state, "deterministic"] for state in states]
        assert "36 bars, 6 sections" in ran.lines[1]
        assert "attempt 1/3" in ran.lines[2]
        assert detent("run", "choreography", "song.wav", *QUICK, "--quiet").out == ""
        (studio / "shows" / "song" / "audio.json").mkdir(parents=True)
        full = detent("run", "choreography", "song.wav", *QUICK, "--out", "shows")
        assert full.code == 1
        assert f"{studio}/shows/song/audio.json cannot be written" in full.out

    def test_generic_commands_know_a_show(self, studio, detent):
        """R-67: by the names of states and steps alone."""
        detent("run", "choreography", "song.wav", *QUICK, "--id", "r1")
        assert "choreography" in detent("show", "r1").out
        assert "decided by   handler" in detent("why", "r1").out
        assert "=== Run r1 Metrics Report ===" in detent("metrics", "r1").out
        assert "implementing" in detent("diagram", "r1").out
        assert all(json.loads(line)["run"] == "r1" for line in detent("export", "r1").lines)
        assert detent("check", "choreography").out == "choreography: ok, 5 steps\n"
        forked = detent("fork", "r1", "--at", "judging", "--id", "r2")
        assert forked.code == 0, forked.err

    def test_a_memory_store_forgets_and_a_tape_is_played(self, studio, detent):
        forgot = detent("run", "choreography", "song.wav", *QUICK, "--store", "memory:")
        assert forgot.code == 0, forgot.err
        assert names(studio / "song") == FILES
        recorded = detent("run", "choreography", "song.wav", *QUICK, "--record", "tape.jsonl")
        assert recorded.code == 0, recorded.err
        (studio / "song" / "song_detent_mh.xsq").unlink()
        replayed = detent("run", "choreography", "song.wav", *QUICK, "--replay", "tape.jsonl")
        assert replayed.code == 0, replayed.err
        assert not (studio / "song" / "song_detent_mh.xsq").exists()

    def test_a_rig_of_few_colours_is_given_no_others(self, studio, detent):
        """The planner knows the maps; a wheel with one gobo has nothing to choose."""
        maps = "maps: {color: {white: 0, red: 16, blue: 32}, gobo: {open: 7}}"
        head = "  - {{fixture_id: H{0}, xlights_model_name: H{0}, config: {{{1}}}}}\n"
        rows = head.format(1, maps) + head.format(2, maps) + head.format(3, "channel_count: 16")
        (studio / "rig.yaml").write_text(f"fixtures:\n{rows}")
        ran = detent("run", "choreography", "song.wav", *QUICK, "--fixtures", "rig.yaml", "--json")
        assert ran.code == 0, ran.err
        channels = [section["channels"] for section in ran.json["plan"]["sections"]]
        assert {shown["color"] for shown in channels} == {"white", "red", "blue"}
        assert not [line for line in ran.json["warnings"] if " no color " in line or " no gobo " in line]


class TestRubbish:
    def test_every_problem_is_told_at_once(self, studio, detent):
        """R-53: of settings, rig, templates, base, song and wishes, before any run is started."""
        (studio / "detent.yaml").write_text(
            "choreography:\n  projekt_name: x\n  frame_ms: 30\n  fixture_config_path: rig.yaml\n"
            "  template_dirs: [own]\n  agent: {max_iteration: 2}\n"
        )
        (studio / "rig.yaml").write_text(
            "fixtures:\n  - {fixture_id: A, xlights_model_name: A, config: {chanel_count: 16}}\n"
        )
        (studio / "own").mkdir()
        (studio / "own" / "foo.json").write_text('{"template_id": "foo"}')
        (studio / "base.xsq").write_text("<xsequence>")
        wishes = ("--analyser", "libroza", "--bpm", "0", "--project", "a/b", "--xsq", "base.xsq")
        ran = detent("run", "choreography", "nowhere.wav", *wishes)
        assert ran.code == 2
        for part in (
            "'choreography.projekt_name'. Did you mean 'project_name'?",
            "'choreography.agent.max_iteration'. Did you mean 'max_iterations'?",
            "detent.yaml:3:3: 'choreography.frame_ms' should be 20, 25 or 50.",
            "'chanel_count' is not a key of 'config'. Did you mean 'channel_count'?",
            "foo.json:1:1: 'category' is missing.",
            "base.xsq: ", "nowhere.wav: there is no such file.", "Did you mean 'librosa'?",
            "0.0 BPM is not possible", "'a/b' cannot be the name of a folder",
        ):  # fmt: skip
            assert part in ran.err, part
        assert not (studio / ".detent").exists()

    @pytest.mark.parametrize(
        ("options", "part"),
        [
            (("--bpm", "0"), "it must be 30 to 300"),
            (("--bpm", "nan"), "it must be 30 to 300"),
            (("--threshold", "101"), "less than or equal to 100"),
            (("--max-iterations", "0"), "--max-iterations"),
            (("--frame-ms", "30"), "should be 20, 25 or 50"),
            (("--project", "a/b"), "cannot be the name of a folder"),
            (("--project", ".."), "cannot be the name of a folder"),
            (("--project", "x" * 300), "too long"),
            (("--mode", "plann=agent"), "Did you mean 'plan'?"),
            (("--fixtures", "nowhere.yaml"), "nowhere.yaml"),
            (("--templates", "nowhere"), "nowhere"),
            (("--layout", "nowhere.xml"), "nowhere.xml"),
            (("--media", "S:/\udcff.wav"), "is not valid UTF-8"),
            (("--out", "\udcff.xsq"), "is not valid UTF-8"),
            (("--audio", "song.wav"), "Name one song"),
        ],
    )
    def test_a_wish_that_cannot_be_met_is_refused_before_any_work(self, studio, detent, options, part):
        """R-55: exit 2, nothing is started."""
        ran = detent("run", "choreography", "song.wav", *options)
        assert (ran.code, part in ran.err) == (2, True), ran.err
        assert not (studio / ".detent").exists()
        assert not (studio / "song").exists()

    def test_a_foreign_sequence_is_overwritten_only_by_force(self, studio, detent):
        """R-52"""
        place = studio / "song" / "song_detent_mh.xsq"
        place.parent.mkdir()
        place.write_text("<xsequence><head><comment>by hand</comment></head></xsequence>")
        ran = detent("run", "choreography", "song.wav", *QUICK)
        assert (ran.code, "was not made by Detent" in ran.err) == (2, True)
        assert "by hand" in place.read_text()
        assert not (studio / ".detent").exists()
        assert detent("run", "choreography", "song.wav", *QUICK, "--force").code == 0
        assert detent("run", "choreography", "song.wav", *QUICK).code == 0

    @pytest.mark.parametrize(
        ("content", "reason"),
        [(b"no music " * 500, "Input rejected: format"), (b"", "Input rejected: empty")],
    )
    def test_what_is_no_song_is_rejected(self, studio, detent, content, reason):
        """R-44, R-55: exit 2."""
        (studio / "text.mp3").write_bytes(content)
        ran = detent("run", "choreography", "text.mp3", *QUICK)
        assert (ran.code, reason in ran.out) == (2, True)
        assert "there is no implementation to write" in ran.out

    @pytest.mark.parametrize("base", [None, 50], ids=str)
    def test_a_song_shorter_than_a_frame_is_rejected(self, studio, detent, base):
        """R-44: before a run that could never write its sequence."""
        tones(studio / "click.wav", seconds=0.02 if base is None else 0.04)
        arguments = ()
        if base:
            assert detent("run", "choreography", "song.wav", *QUICK, "--frame-ms", "50").code == 0
            arguments = ("--xsq", "song/song_detent_mh.xsq")
        ran = detent("run", "choreography", "click.wav", *QUICK, *arguments)
        assert (ran.code, "Input rejected: too_short" in ran.out) == (2, True)

    @pytest.mark.parametrize(
        "spec", [{"seconds": 3}, {"seconds": 12, "level": 0.0}, {"seconds": 12, "rate": 48_000}], ids=str
    )
    def test_short_silent_and_fast_sampled_songs_have_their_show(self, studio, detent, spec):
        """R-44: with a warning where something was assumed."""
        tones(studio / "tone.wav", **spec)
        ran = detent("run", "choreography", "tone.wav", *QUICK)
        assert ran.code == 0, ran.out + ran.err
        assert ("  warning: " in ran.out) == ("rate" not in spec)


class TestFilesThatCannotBeWritten:
    def test_the_run_waits_and_goes_on_once_there_is_room(self, studio, detent, monkeypatch):
        """2.5, R-34: exit 1 with the file named; resume completes the rest, from another working folder."""
        (studio / "x" / "song" / "audio.json").mkdir(parents=True)
        ran = detent("run", "choreography", "song.wav", *QUICK, "--out", "x", "--id", "r1")
        assert ran.code == 1
        assert f"{studio}/x/song/audio.json cannot be written: Is a directory" in ran.out
        assert "detent resume r1" in ran.out
        assert detent("resume", "r1").code == 1
        (studio / "x" / "song" / "audio.json").rmdir()
        elsewhere = studio / "elsewhere"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        resumed = detent("resume", "r1", "--store", str(studio / ".detent" / "detent.db"))
        assert resumed.code == 0, resumed.err
        assert names(studio / "x" / "song") == FILES
        assert "song_detent_mh.xsq" in resumed.out

    @pytest.mark.parametrize(
        "command",
        [("run", "choreography", "song.wav", "--out", "blocked/x"),
         ("run", "choreography", "song.wav", "--out", "/proc/x/show.xsq"),
         ("choreography", "analyze", "song.wav", "--out", "blocked/audio.json"),
         ("choreography", "implement", "plan.json", "--audio", "song.wav", "--out", "blocked/x/i.json"),
         ("choreography", "export", "i.json", "--audio", "song.wav", "--out", "blocked/x/show.xsq")],
    )  # fmt: skip
    def test_a_place_that_cannot_be_written_is_told_before_the_song_is_measured(
        self, studio, detent, monkeypatch, command
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", str(studio / "cold"))
        (studio / "blocked").touch()
        ran = detent(*command)
        assert (ran.code, "Nothing can be written to" in ran.err) == (2, True), ran.err
        assert {path.name for path in studio.iterdir()} == {"blocked", "song.wav"}

    def test_files_of_an_earlier_show_are_told_of(self, studio, detent):
        """A folder is not mixed in silence; what this show replaces is not spoken of."""
        assert detent("run", "choreography", "song.wav", *QUICK).code == 0
        again = detent("run", "choreography", "song.wav", *QUICK)
        assert "earlier show" not in again.out
        (studio / "song" / "timeline.png").touch()
        mixed = detent("run", "choreography", "song.wav", *QUICK, "--out", "song.xsq", "--json").json
        (warning,) = (line for line in mixed["warnings"] if "earlier show" in line)
        assert "song_detent_mh.xsq, timeline.png are of an earlier show" in warning
        kept = json.loads((studio / "song" / "result.json").read_text())
        assert warning in kept["warnings"]

    def test_a_file_in_the_place_of_a_folder_is_told_before_any_work(self, studio, detent):
        (studio / "song").touch()
        ran = detent("run", "choreography", "song.wav", *QUICK)
        assert (ran.code, "is a file; the show needs a folder" in ran.err) == (2, True)


class TestProcesses:
    def test_a_missing_extra_is_named_before_any_run(self, studio):
        """3.1, R-55: exit 3 and the line that installs it."""
        (studio / "hidden").mkdir()
        (studio / "hidden" / "soundfile.py").write_text("raise ImportError('not installed')\n")
        environment = {**os.environ, "PYTHONPATH": str(studio / "hidden")}
        ran = subprocess.run(
            [sys.executable, "-m", "detent", "run", "choreography", "song.wav"], env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 3, ran.stderr
        assert "pip install 'detent[choreography]'" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert not (studio / ".detent").exists()

    def test_a_run_stopped_by_hand_goes_on(self, studio, detent, monkeypatch):
        """R-34: Ctrl-C while the song is measured; it is so long that nobody is done before the signal."""
        monkeypatch.setenv("XDG_CACHE_HOME", str(studio / "cold"))
        repeat(studio / "song.wav", 8)
        process = Process(studio, ("run", "choreography", "song.wav", *QUICK, "--id", "r1"))
        process.until("run r1")
        process.signal(signal.SIGINT)
        stopped = process.result()
        assert stopped.code == 130
        assert "Stopped. The run is kept and can go on: detent resume r1" in stopped.err
        assert not (studio / "song").exists()
        resumed = detent("resume", "r1")
        assert resumed.code == 0, resumed.err
        assert names(studio / "song") == FILES

    def test_two_runs_into_one_folder_leave_whole_files(self, studio):
        """Whichever is last: each file is one of theirs."""

        def run(name: str) -> Any:
            return subprocess.run(
                [sys.executable, "-m", "detent", "run", "choreography", "song.wav", *QUICK, "--id", name],
                capture_output=True, text=True, check=False,
            )  # fmt: skip

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(run, ("r1", "r2")))
        assert [one.returncode for one in ended] == [0, 0], [one.stderr for one in ended]
        assert names(studio / "song") == FILES
        assert json.loads((studio / "song" / "result.json").read_text())["run_id"] in ("r1", "r2")


@pytest.mark.parametrize("option", ["--xsq", "--out", "--fixtures", "--layout"])
@pytest.mark.parametrize("place", ["pipe.xsq", "device.xsq"])
def test_pipes_and_devices_are_refused_and_never_waited_for(studio, detent, option, place):
    """A pipe waits for its other end, and a device never ends."""
    os.mkfifo("pipe.xsq")
    Path("device.xsq").symlink_to("/dev/zero")
    ran = detent("run", "choreography", "song.wav", *QUICK, option, place)
    assert ran.code == 2
    assert "pipe or a device" in ran.err
    assert not (studio / "detent.db").exists()
