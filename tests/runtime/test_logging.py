"""What is logged, how and where."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from detent.engine import logger
from detent.kernel.errors import ConfigurationError
from detent.runtime.logging import configure
from detent.runtime.settings import Settings


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def logging(folder: Path, **values) -> Settings:
    return Settings(folder, values={"logging": values})


def test_json_lines_go_to_a_file_from_a_level_upwards(tmp_path):
    configure(logging(tmp_path, format="json", level="warning", file="out.log"))
    logger.info("step.completed", step="a")
    logger.warning("step.failed", step="b", attempt=2)
    (line,) = (tmp_path / "out.log").read_text().splitlines()
    told = json.loads(line)
    assert (told["event"], told["step"], told["attempt"], told["level"]) == ("step.failed", "b", 2, "warning")
    assert told["timestamp"].endswith("Z")


def test_the_command_line_wins(tmp_path):
    configure(logging(tmp_path, format="json", level="error", file="out.log"), "info")
    logger.info("run.ended")
    assert (tmp_path / "out.log").read_text()


def test_text_is_plain_where_nobody_looks(tmp_path, capsys):
    configure(logging(tmp_path))
    logger.info("run.ended", run_id="r1")
    told = capsys.readouterr().err
    assert "run.ended" in told
    assert "run_id=r1" in told
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"level": "inof"}, "Did you mean 'info'"),
        ({"file": "gone/out.log"}, "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, values, said):
    with pytest.raises(ConfigurationError, match=said):
        configure(logging(tmp_path, **values))


def test_news_and_troubles_may_go_to_two_streams(tmp_path, capsys):
    configure(logging(tmp_path, format="json"), split=True)
    logger.info("run.ended")
    logger.warning("step.failed")
    logger.error("run.failed")
    said = capsys.readouterr()
    assert [json.loads(line)["event"] for line in said.out.splitlines()] == ["run.ended"]
    assert [json.loads(line)["event"] for line in said.err.splitlines()] == ["step.failed", "run.failed"]


def test_a_file_takes_both(tmp_path, capsys):
    configure(logging(tmp_path, format="json", file="out.log"), split=True)
    logger.info("run.ended")
    logger.error("run.failed")
    assert len((tmp_path / "out.log").read_text().splitlines()) == 2
    assert capsys.readouterr() == ("", "")
