"""The recipe of the closing behavior: what a stage or step has to hold is asserted again."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from detent.flows.notebook.recipes.code_text import fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe
from detent.kernel.errors import ConfigurationError


def recipe(kitchen: Kitchen, criteria: Sequence[str]) -> Recipe:
    """The recipe that checks criteria again, expressions over the notebook's names.

    It writes `step_validation_report`: {criterion: {"passed": bool, "measured": what it compares}}.

    Raises:
        ConfigurationError: a criterion is no Python expression.
    """
    slots = {
        "CHECKS": "\n".join(_check(criterion) for criterion in criteria),
        "ITERATION": literal(kitchen.iteration),
    }
    return Recipe(
        lead=(
            "Does this stage hold what it has to? Each criterion is evaluated once more, on the data and "
            "files as they are now. A criterion holds only if its value is exactly true; one that raises "
            "has failed."
        ),
        code=fill(_VALIDATION if kitchen.iteration == 1 else _VALIDATION_AGAIN, slots),
        result=_VALIDATION_RESULT,
    )


def _check(criterion: str) -> str:
    """A criterion as an entry of a dictionary: its text, the test, and what it compares."""
    text = criterion.strip()
    try:
        parsed = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ConfigurationError(f"The criterion {text!r} is no Python expression: {error.msg}.") from error
    measured = ast.unparse(parsed.left) if isinstance(parsed, ast.Compare) else ast.unparse(parsed)
    return f"    {text!r}: (lambda: ({ast.unparse(parsed)}), lambda: ({measured})),"


_VALIDATION = r'''
criteria_to_hold = {
<<CHECKS>>
}


def checked(holds, measured):
    """Whether a criterion is exactly true, and what was measured."""
    try:
        value, figure = holds(), measured()
    except Exception as error:
        return {"passed": False, "measured": f"{type(error).__name__}: {error}"[:200]}
    figure = figure.item() if isinstance(figure, np.generic) else figure
    shown = figure if isinstance(figure, (bool, int, float, str)) else type(figure).__name__
    return {"passed": isinstance(value, (bool, np.bool_)) and bool(value), "measured": shown}


step_validation_report = {text: checked(*functions) for text, functions in criteria_to_hold.items()}
for text, outcome in step_validation_report.items():
    print("passed" if outcome["passed"] else "FAILED", text, "| measured:", outcome["measured"])
'''

_VALIDATION_AGAIN = r"""
# Written out one by one in iteration <<ITERATION>>: a criterion that raises must not keep the others
# from being seen.
criteria_to_hold = {
<<CHECKS>>
}
step_validation_report = {}
for text, (holds, measured) in criteria_to_hold.items():
    outcome = {"passed": False, "measured": "not measured"}
    try:
        value = holds()
        outcome["passed"] = isinstance(value, (bool, np.bool_)) and bool(value)
        outcome["measured"] = outcome["passed"]
        figure = measured()
        if isinstance(figure, (int, float, str, np.number)):
            outcome["measured"] = figure.item() if isinstance(figure, np.number) else figure
    except Exception as error:
        outcome["measured"] = f"{type(error).__name__}: {error}"[:200]
    step_validation_report[text] = outcome
    print("passed" if outcome["passed"] else "FAILED", text, "| measured:", outcome["measured"])
"""

_VALIDATION_RESULT = r"""
(
    f"**{sum(outcome['passed'] for outcome in step_validation_report.values())} of "
    f"{len(step_validation_report)} "
    f"criteria hold.**"
    + "".join(
        f"\n- not so: `{text}` (measured: {outcome['measured']})"
        for text, outcome in step_validation_report.items()
        if not outcome["passed"]
    )
)
"""
