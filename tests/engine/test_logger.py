"""Events reach whoever listens, and cost next to nothing when nobody does."""

import asyncio
import logging
import subprocess
import sys

import pytest
import structlog

from detent.engine import logger


@pytest.fixture(autouse=True)
def _unconfigured_structlog():
    """structlog's configuration is the whole process's: each test starts and leaves without one."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, logger="detent")
    return caplog


def test_without_structlog_an_event_is_a_line_of_the_standard_logger(lines):
    logger.info("step.completed", step="check", ms=12, next=None)
    (record,) = lines.records
    assert record.name == "detent"
    assert record.levelno == logging.INFO
    assert record.getMessage() == "step.completed step=check ms=12 next=None"


def test_the_facts_travel_with_the_record(lines):
    logger.warning("step.refused", step="check", tries=[1, 2])
    assert lines.records[0].detent == {"step": "check", "tries": [1, 2]}


def test_an_event_points_at_the_line_that_said_it(lines):
    logger.error("step.failed")
    assert lines.records[0].funcName == "test_an_event_points_at_the_line_that_said_it"


def test_text_of_several_words_is_quoted(lines):
    logger.info("step.completed", reason="Plan generation failed", empty="")
    assert lines.records[0].getMessage() == "step.completed reason='Plan generation failed' empty=''"


def test_a_line_break_in_a_fact_cannot_forge_a_line(lines):
    logger.info("mail.read", subject="hello\nstate.moved to=approved")
    assert "\n" not in lines.records[0].getMessage()


def test_a_percent_sign_is_not_a_placeholder(lines):
    logger.info("budget.passed", used="100%s")
    assert lines.records[0].getMessage() == "budget.passed used=100%s"


@pytest.mark.parametrize(
    ("say", "level"),
    [
        (logger.debug, logging.DEBUG),
        (logger.info, logging.INFO),
        (logger.warning, logging.WARNING),
        (logger.error, logging.ERROR),
    ],
)
def test_every_verb_has_its_level(say, level, lines):
    say("thing.happened")
    assert lines.records[0].levelno == level
    with structlog.testing.capture_logs() as events:
        say("thing.happened")
    assert events == [{"event": "thing.happened", "log_level": logging.getLevelName(level).lower()}]


def test_a_level_nobody_asked_for_is_not_wanted_and_not_said(caplog):
    caplog.set_level(logging.WARNING, logger="detent")
    assert not logger.wants(logger.INFO)
    assert logger.wants(logger.WARNING)
    logger.info("step.completed")
    assert caplog.records == []


def test_structlog_that_is_loaded_but_not_configured_is_left_alone(lines, capsys):
    assert not structlog.is_configured()
    logger.info("step.completed")
    assert len(lines.records) == 1
    assert capsys.readouterr().out == ""


def test_configured_structlog_gets_the_event_and_the_facts_as_fields(lines):
    with structlog.testing.capture_logs() as events:
        logger.info("state.moved", **{"from": "planning", "to": "judging"}, tokens=5)
    assert events == [
        {"event": "state.moved", "from": "planning", "to": "judging", "tokens": 5, "log_level": "info"}
    ]
    assert lines.records == []


def test_a_later_configuration_of_structlog_is_heeded():
    first, second = structlog.testing.LogCapture(), structlog.testing.LogCapture()
    structlog.configure(processors=[first], cache_logger_on_first_use=True)
    logger.info("one.said")
    structlog.configure(processors=[second])
    logger.info("two.said")
    assert [entry["event"] for entry in first.entries] == ["one.said"]
    assert [entry["event"] for entry in second.entries] == ["two.said"]


def test_structlog_s_own_level_decides_what_is_wanted():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    assert not logger.wants(logger.INFO)
    assert logger.wants(logger.ERROR)


def test_with_structlog_on_the_standard_library_everything_is_wanted_and_its_processors_decide():
    structlog.configure(
        wrapper_class=structlog.stdlib.BoundLogger, logger_factory=structlog.stdlib.LoggerFactory()
    )
    assert logger.wants(logger.DEBUG)


def test_a_program_that_configures_nothing_hears_nothing_and_loads_no_structlog():
    code = (
        "import sys; from detent.engine import logger; logger.error('store.failed', why='disk'); "
        "print('structlog' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_facts_of_a_block_stand_in_every_line_of_it_and_of_tasks_begun_there(caplog):
    async def both() -> None:
        with logger.about(mail_key="m1"):
            task = asyncio.create_task(later())
            with logger.about(step="b"):
                logger.info("inner.said")
        logger.info("outer.said")
        await task

    async def later() -> None:
        logger.info("task.said", mail_key="own")
        logger.info("task.ended")

    with caplog.at_level(logging.INFO, "detent"):
        asyncio.run(both())
    assert [record.getMessage() for record in caplog.records] == [
        "inner.said mail_key=m1 step=b",
        "outer.said",
        "task.said mail_key=own",
        "task.ended mail_key=m1",
    ]
