"""What a run prints while it is driven. N-100."""

import pytest

from detent.engine.observers import Progress
from detent.flows.notebook.commands.display import NotebookLines
from detent.flows.notebook.kernel.session import REPLAYING
from detent.flows.notebook.verification import EXECUTING_AGAIN


@pytest.mark.parametrize("text", [REPLAYING, EXECUTING_AGAIN])
def test_what_takes_long_is_said_once_without_a_terminal(capsys, text):
    with NotebookLines("notebook") as lines:
        for number in range(3):
            lines.on_progress("run", "notebook", "step", Progress(number, 3, text))
            lines.on_progress("run", "other", "step", Progress(number, 3, text))
            lines.on_progress("run", "notebook", "step", Progress(number, 3, "cell 1"))
    assert capsys.readouterr().out == f"    {text} (3)\n"
