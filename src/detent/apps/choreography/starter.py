"""What `detent new choreography DIR` writes: settings, a rig, and a song to try them with."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Beginning

SETTINGS = """\
# The choreographer's settings; all of them are in docs/choreography.md.
choreography:
  fixture_config_path: rig.yaml
  output_dir: shows
"""

RIG = """\
# Your moving heads, from left to right, with the names they have in xLights.
group_id: MOVING_HEADS
fixtures:
"""
HEAD = """\
  - fixture_id: MH{number}
    xlights_model_name: "Dmx MH{number}"
    config:
      channel_count: 16
      dmx_mapping: {{pan: 1, pan_fine: 2, tilt: 3, tilt_fine: 4, dimmer: 6, shutter: 7, color: 8, gobo: 9}}
      pan_range: [-270, 270]
      tilt_range: [-135, 135]
"""
HEADS = 4


def beginning(folder: Path) -> Beginning:
    """The files of a new project.

    Raises:
        ConfigurationError: the folder holds something already.
        IntegrationMissing: the libraries that make the song are not installed.
    """
    from detent.apps.choreography.audio.synthetic import SongSpec, write_song

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} holds something already; name a folder that is new or empty.")
    with TemporaryDirectory() as place:
        song = Path(place) / "song.wav"
        write_song(SongSpec("first lights", bpm=124), song)
        sound = song.read_bytes()
    heads = "".join(HEAD.format(number=number) for number in range(1, HEADS + 1))
    return Beginning(
        {folder / "detent.yaml": SETTINGS, folder / "rig.yaml": RIG + heads, folder / "song.wav": sound},
        f"A project for light shows is in {folder}, with a song that was made for it.",
        [
            f"cd {quote(str(folder))}",
            "detent trust --always                          (the files are yours to edit)",
            "detent run choreography song.wav",
        ],
        project=folder,
    )
