"""`detent choreography …`: single parts, without a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from detent.apps.choreography.orchestrator import AgentOrchestrator


@pytest.fixture
def show(studio: Path) -> Path:
    """The folder of a show that was made."""
    result = AgentOrchestrator().run("song.wav", analyser="builtin", picture=False)
    assert result.status == "success"
    return studio / "song"


def group(*args: str) -> tuple[str, ...]:
    return ("choreography", *args)


class TestSongs:
    def test_analyze_prints_what_it_measured(self, studio, detent):
        """R-55"""
        arguments = ("analyze", "song.wav", "--analyser", "builtin")
        ran = detent(*group(*arguments), "--out", "audio.json")
        assert ran.code == 0, ran.err
        assert "150.0 BPM" in ran.out
        assert "36 of 4/4" in ran.out
        assert sum(line.startswith("S") and "-" in line for line in ran.lines) == 6
        written = json.loads((studio / "audio.json").read_text())
        assert detent(*group(*arguments), "--json").json == written
        assert written["schema_version"] == "1"
        (studio / "text.mp3").write_text("words " * 100)
        refused = detent(*group("analyze", "text.mp3"))
        assert (refused.code, "wav, flac, ogg or mp3" in refused.err) == (2, True)

    @pytest.mark.parametrize("content", ["{}", "[]", "{", "[" * 100_000, '{"bars_s": [NaN]}'], ids=repr)
    def test_a_damaged_cache_is_measured_anew(self, studio, detent, monkeypatch, content):
        """3.1"""
        monkeypatch.setenv("XDG_CACHE_HOME", str(studio / "cold"))
        arguments = group("analyze", "song.wav", "--analyser", "builtin", "--json")
        measured = detent(*arguments).json
        (kept,) = (studio / "cold/detent/songs").iterdir()
        kept.write_text(content)
        assert detent(*arguments).json == measured
        assert json.loads(kept.read_text())["bars_s"] == measured["bars_s"]

    def test_bpm_and_analyser_are_checked(self, studio, detent):
        refused = detent(*group("analyze", "song.wav", "--bpm", "0", "--analyser", "x"))
        assert refused.code == 2
        assert "it must be 30 to 300" in refused.err
        assert "no analyser 'x'" in refused.err


class TestPlansAndShows:
    def test_a_changed_plan_is_expanded_anew_and_an_old_implementation_refused(self, show, detent):
        """3.7: templates changed by hand reach the heads, or the mismatch is named."""
        audio = ("--audio", str(show / "audio.json"))
        plan, made = show / "plan.json", show / "implementation.json"
        changed = json.loads(plan.read_text())
        before = changed["sections"][0]["templates"][0]
        changed["sections"][0]["templates"] = ["slow_fan" if before != "slow_fan" else "clockface"]
        (show / "changed.json").write_text(json.dumps(changed))
        old = detent(*group("judge", str(show / "changed.json"), str(made), *audio))
        assert (old.code, f"no template '{before}'" in old.err) == (2, True)
        out = ("--out", str(show / "anew.json"))
        assert detent(*group("implement", str(show / "changed.json"), *audio, *out)).code == 0
        anew = json.loads((show / "anew.json").read_text())
        assert anew["sections"][0]["template_id"] == changed["sections"][0]["templates"][0]
        assert detent(*group("judge", str(show / "changed.json"), str(show / "anew.json"), *audio)).code in (
            0,
            4,
        )
        again = ("--out", str(show / "same.json"))
        assert detent(*group("implement", str(plan), *audio, *again)).code == 0
        assert json.loads((show / "same.json").read_text()) == json.loads(made.read_text())

    def test_validate_lists_every_issue_and_fails_on_errors(self, show, detent):
        """R-55, R-45"""
        audio = ("--audio", str(show / "audio.json"))
        ran = detent(*group("validate", str(show / "plan.json"), *audio))
        assert ran.code == 0, ran.err
        assert ran.lines[-1].startswith("0 errors, ")
        plan = json.loads((show / "plan.json").read_text())
        plan["sections"][0]["templates"] = ["spark_rely"]
        plan["sections"][1]["start_bar"] += 2
        (show / "bad.json").write_text(json.dumps(plan))
        bad = detent(*group("validate", str(show / "bad.json"), *audio))
        assert bad.code == 2
        assert "spark_relay" in bad.out
        assert bad.lines[-1].startswith("2 errors, ")
        report = detent(*group("validate", str(show / "bad.json"), *audio, "--json"))
        assert (report.code, report.json["passed"]) == (2, False)
        plan["sections"][0]["start_ms"] = 0
        (show / "bad.json").write_text(json.dumps(plan))
        refused = detent(*group("validate", str(show / "bad.json"), *audio))
        assert (refused.code, "start_ms" in refused.err, "bad.json" in refused.err) == (2, True, True)

    def test_judge_exits_4_unless_the_show_passes(self, show, studio, detent):
        """R-55, R-46: the scores are those of the run."""
        paths = (str(show / "plan.json"), str(show / "implementation.json"))
        audio = ("--audio", str(show / "audio.json"))
        evaluation = json.loads((show / "evaluation.json").read_text())
        ran = detent(*group("judge", *paths, *audio))
        assert ran.code == 0, ran.err
        assert f"overall {evaluation['overall_score']:.1f}: passes" in ran.out
        assert detent(*group("judge", *paths, *audio, "--json")).json == evaluation
        (studio / "detent.yaml").write_text("choreography: {agent: {success_threshold: 99.9}}\n")
        strict = detent(*group("judge", *paths, *audio))
        assert (strict.code, "does not pass" in strict.out) == (4, True)
        implementation = json.loads((show / "implementation.json").read_text())
        for section in implementation["sections"]:
            section["targets"] = ["ALL"]
        (show / "shared.json").write_text(json.dumps(implementation))
        failed = detent(*group("judge", paths[0], str(show / "shared.json"), *audio))
        assert failed.code == 4
        assert "does not pass" in failed.out
        assert "automatic failure: target_conflict" in failed.out

    def test_judge_goes_by_the_rig_of_the_project(self, show, studio, detent):
        """The same as a run would: heads that are not there are unknown targets."""
        (studio / "rig.yaml").write_text(
            "fixtures:\n  - fixture_id: A\n    xlights_model_name: A\n    config:\n      channel_count: 16\n"
            "      dmx_mapping: {pan: 1, tilt: 3, dimmer: 6}\n      pan_range: [-270, 270]\n"
            "      tilt_range: [-135, 135]\n"
        )
        (studio / "detent.yaml").write_text("choreography: {fixture_config_path: rig.yaml}\n")
        paths = (str(show / "plan.json"), str(show / "implementation.json"))
        ran = detent(*group("judge", *paths, "--audio", str(show / "audio.json")))
        assert ran.code == 4, ran.out + ran.err

    def test_export_writes_the_sequence_of_the_run(self, show, studio, detent):
        """R-55, R-50: byte for byte, and never over a foreign file."""
        arguments = (str(show / "implementation.json"), "--audio", str(show / "audio.json"))
        ran = detent(*group("export", *arguments, "--out", "again.xsq"))
        assert ran.code == 0, ran.err
        assert (studio / "again.xsq").read_bytes() == (show / "song_detent_mh.xsq").read_bytes()
        (studio / "mine.xsq").write_text("<xsequence/>")
        refused = detent(*group("export", *arguments, "--out", "mine.xsq"))
        assert (refused.code, "was not made by Detent" in refused.err) == (2, True)
        assert detent(*group("export", *arguments, "--out", "mine.xsq", "--force")).code == 0
        assert detent(*group("export", *arguments, "--out", "show.txt")).code == 2

    def test_folders_are_made_and_a_place_that_is_none_is_told(self, show, studio, detent):
        """R-53"""
        audio = ("--audio", str(show / "audio.json"))
        assert (
            detent(*group("analyze", "song.wav", "--analyser", "builtin", "--out", "a/b/audio.json")).code
            == 0
        )
        assert (studio / "a/b/audio.json").is_file()
        made = detent(*group("implement", str(show / "plan.json"), *audio, "--out", "c/impl.json"))
        assert made.code == 0, made.err
        refused = detent(*group("export", "c/impl.json", *audio, "--out", "c/show.xsq"))
        assert (refused.code, "with --plan" in refused.err) == (2, True)
        plan = ("--plan", str(show / "plan.json"))
        assert detent(*group("export", "c/impl.json", *plan, *audio, "--out", "c/show.xsq")).code == 0
        assert detent(*group("analyze", "song.wav", "--out", "c")).code == 2
        (studio / "file").touch()
        assert detent(*group("picture", str(show / "result.json"), "--out", "file/show.svg")).code == 2

    def test_a_file_beside_the_sequence_does_not_matter(self, show, studio, detent):
        """Only a run needs a folder of the name."""
        (studio / "again").touch()
        arguments = (str(show / "implementation.json"), "--audio", str(show / "audio.json"))
        assert detent(*group("export", *arguments, "--out", "again.xsq")).code == 0

    def test_an_analysis_changed_by_hand_is_checked(self, show, studio, detent):
        text = (show / "audio.json").read_text()
        cases = [
            (("bars_s", 3), 0.1, "bars_s must rise"),
            (("bars_s", 0), 0.5, "bars_s must begin with 0"),
            (("duration_s",), 1e308, "duration_s"),
            (("energy", "per_bar", 2), "loud", "energy.per_bar[2]"),
            (("energy", "per_bar"), [1.0], "one for each bar"),
            (("structure", "sections", 1, "label"), "vers", "Nearest: 'verse'"),
            (("structure", "sections", 1, "start_bar"), 7, "must start at bar 5"),
            (("time_signature", "time_signature"), "0/4", "time_signature"),
            (("audio_path",), 5, "audio_path"),
        ]
        for (*above, last), value, part in cases:
            audio = place = json.loads(text)
            for key in above:
                place = place[key]
            place[last] = value
            (studio / "audio.json").write_text(json.dumps(audio))
            ran = detent(*group("validate", str(show / "plan.json"), "--audio", "audio.json"))
            assert (ran.code, part in ran.err, "is not the analysis" in ran.err) == (2, True, True), ran.err

    def test_a_hostile_plan_is_refused_at_once(self, show, studio, detent):
        """What an agent may answer, a person may hand in."""
        row = {"name": "A", "start_bar": 1, "end_bar": 5, "section_role": "verse", "energy_level": 5}
        row["templates"] = ["slow_fan"]
        cases = [
            ("[" * 50_000, "not JSON"),
            (json.dumps({"sections": [row, "x"]}), "sections[1]"),
            (json.dumps({"sections": [row] * 2_001}), "at most 2000"),
            (json.dumps({"sections": [{**row, "end_bar": 10**400}]}), "less than or equal to 100000"),
        ]
        for text, part in cases:
            (studio / "bad.json").write_text(text)
            for command in (("validate",), ("implement", "--out", "i.json")):
                ran = detent(*group(*command, "bad.json", "--audio", str(show / "audio.json")))
                assert (ran.code, part in ran.err) == (2, True), ran.err[-300:]

    def test_picture_draws_what_was_made(self, show, studio, detent):
        """R-54, R-55"""
        for name, start in (("show.svg", b"<"), ("show.png", b"\x89PNG")):
            ran = detent(*group("picture", str(show / "result.json"), "--out", name))
            assert ran.code == 0, ran.err
            assert (studio / name).read_bytes().startswith(start)
        refused = detent(*group("picture", str(show / "plan.json"), "--out", "x.svg"))
        assert (refused.code, "Traceback" in refused.err) == (2, False)
        assert detent(*group("picture", str(show / "result.json"), "--out", "x.gif")).code == 2

    def test_check_names_what_breaks_a_sequence(self, show, studio, detent):
        """R-50, R-55"""
        sequence = show / "song_detent_mh.xsq"
        assert detent(*group("check", str(sequence))).out == f"{sequence}: no problems\n"
        broken = sequence.read_text().replace('FixedPointTiming="1"', "").replace('ref="0"', 'ref="99999"')
        (studio / "broken.xsq").write_text(broken)
        ran = detent(*group("check", "broken.xsq"))
        assert ran.code == 2
        assert "FixedPointTiming" in ran.out
        assert len(detent(*group("check", "broken.xsq", "--json")).json) >= 2
        assert detent(*group("check", "nowhere.xsq")).code == 2


class TestTemplates:
    def test_they_are_listed_and_shown(self, studio, detent):
        """R-55"""
        listed = detent(*group("templates", "list", "--json")).json
        assert len(listed) == 18
        assert "spark_relay" in detent(*group("templates", "list")).out
        shown = detent(*group("templates", "show", "spark_relay")).json
        assert shown["template_id"] == "spark_relay"
        missing = detent(*group("templates", "show", "spark_rely"))
        assert (missing.code, "Did you mean 'spark_relay'?" in missing.err) == (2, True)

    def test_a_folder_is_checked_at_once(self, studio, detent):
        """R-53"""
        own = studio / "own"
        own.mkdir()
        template = detent(*group("templates", "show", "spark_relay")).json
        template["template_id"] = template["name"] = "night_relay"
        (own / "night_relay.json").write_text(json.dumps(template))
        assert detent(*group("templates", "check", "own")).code == 0
        assert "night_relay" in detent(*group("templates", "list", "--templates", "own")).out
        template["layer_role"] = "top"
        (own / "other.json").write_text(json.dumps(template))
        (own / "broken.json").write_text("{")
        ran = detent(*group("templates", "check", "own"))
        assert ran.code == 2
        for part in ("other.json", "broken.json", "layer_role"):
            assert part in ran.out
        assert detent(*group("templates", "check", "nowhere")).code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("check", "pipe"),
        ("validate", "pipe", "--audio", "song.wav"),
        ("validate", "song.wav", "--audio", "pipe.json"),
    ],
    ids=" ".join,
)
def test_single_parts_wait_for_no_pipe(studio, detent, words):
    os.mkfifo("pipe")
    Path("pipe.json").symlink_to("pipe")
    ran = detent(*group(*words))
    assert ran.code == 2
    assert "pipe" in ran.err
