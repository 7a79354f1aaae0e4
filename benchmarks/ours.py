"""Detent's half of the benchmarks, speaking the same script protocol as every peer."""

from benchmarks.protocol import Param, Result, main
from benchmarks.start import help_time, import_time

NOT_WRITTEN = "not written"


def run_object(param: Param) -> Result:
    """Walk the cycle with the bare object: ``steps`` moves, each validated and recorded with its time.

    Build the moves outside the timed part; afterwards check that all were recorded and that one illegal
    move is refused. Return ``{"seconds", "n"}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_engine(param: Param) -> Result:
    """Take ``steps`` steps around the cycle in one run of the whole engine, journal in memory.

    Every step notes its time, as the peers' do; time only the run, not building the engine.
    Return ``{"seconds", "n"}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_durable(param: Param) -> Result:
    """Take ``runs`` runs of ``steps`` steps one after another on SQLite in ``folder`` at full sync.

    Starting the runs is inside the timed part, opening the store is not. Check the pragmas on the
    connection that wrote, and count the entries through a second connection. Return ``{"seconds", "n"}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_fanout(param: Param) -> Result:
    """Take ``runs`` concurrent runs of ``steps`` steps, each awaiting ``wait`` seconds, at full sync.

    Same checks as ``run_durable``. Return ``{"seconds", "n"}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_growth(param: Param) -> Result:
    """Take one run of ``steps`` steps whose data grows by ``bytes`` bytes a step, at full sync.

    Call ``Marks.mark()`` as each step begins, close the store, check that the data is complete, and return
    ``grown(seconds, path, marks, param)`` from the protocol module.
    """
    raise SystemExit(NOT_WRITTEN)


def run_resume(param: Param) -> Result:
    """Resume a run that has ``entries`` entries in its journal, from a store opened afresh.

    Prepare the run outside the timed part; time what resuming costs until the next step could begin.
    Return ``{"seconds", "n"}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_scale(param: Param) -> Result:
    """List, show and measure a store of ``runs`` runs with ``entries`` entries in all.

    Fill the store outside the timed part (at relaxed sync), open it afresh, then time each question.
    Return ``{"seconds": their sum, "n": runs, "list": s, "last_page": s, "show": s, "metrics": s}``.
    """
    raise SystemExit(NOT_WRITTEN)


def run_start(param: Param) -> Result:
    """Measure ``import detent``."""
    return import_time("detent", param["times"])


def run_help(param: Param) -> Result:
    """Measure ``python -m detent --help``."""
    return help_time("detent", param["times"])


if __name__ == "__main__":
    main(
        {
            "object": run_object,
            "engine": run_engine,
            "durable": run_durable,
            "fanout": run_fanout,
            "growth": run_growth,
            "resume": run_resume,
            "scale": run_scale,
            "start": run_start,
            "help": run_help,
        }
    )
