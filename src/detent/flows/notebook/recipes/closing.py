"""The recipe of the closing behavior: what a stage or step has to hold is asserted again."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from detent.flows.notebook.recipes.code_text import fill, literal
from detent.flows.notebook.recipes.recipe import Kitchen, Recipe, Write
from detent.kernel.errors import ConfigurationError

NAME = "validation_and_acceptance"


def validation_and_acceptance(criteria: Sequence[str], subject: str = "stage") -> Write:
    """The recipe that checks these criteria again and writes `step_validation_report`.

    The criteria are Python expressions over names of the notebook. `subject` is what they belong to, such as
    `stage 'Data integrity'`.

    Raises:
        ConfigurationError: a criterion is no Python expression.
    """
    checks = "\n".join(_check(criterion) for criterion in criteria)

    def write(kitchen: Kitchen) -> Recipe:
        slots = {"CHECKS": checks, "ITERATION": literal(kitchen.iteration)}
        return Recipe(
            lead=f"Does the {subject} hold what it has to? Each criterion is evaluated once more, on the data and "
            "files as they are now. A criterion holds only if its value is exactly true; one that raises has failed.",
            code=fill(_VALIDATION if kitchen.iteration == 1 else _VALIDATION_AGAIN, slots),
            result=_VALIDATION_RESULT,
        )

    return write


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
    plain = isinstance(figure, (bool, int, float, str, np.integer, np.floating, np.bool_))
    shown = repr(figure.item() if hasattr(figure, "item") else figure) if plain else type(figure).__name__
    return {"passed": isinstance(value, (bool, np.bool_)) and bool(value), "measured": shown[:200]}


step_validation_report = {text: checked(*functions) for text, functions in criteria_to_hold.items()}
for text, outcome in step_validation_report.items():
    print("passed" if outcome["passed"] else "FAILED", text, "| measured:", outcome["measured"])
'''

_VALIDATION_AGAIN = r"""
# Written out one by one in iteration <<ITERATION>>: a criterion that raises must not keep the others from being seen.
criteria_to_hold = {
<<CHECKS>>
}
step_validation_report = {}
for text, (holds, measured) in criteria_to_hold.items():
    outcome = {"passed": False, "measured": "not measured"}
    try:
        value = holds()
        outcome["passed"] = isinstance(value, (bool, np.bool_)) and bool(value)
        outcome["measured"] = str(value)[:200]
        figure = measured()
        if isinstance(figure, (int, float, str, np.number)):
            outcome["measured"] = str(figure)[:200]
    except Exception as error:
        outcome["measured"] = f"{type(error).__name__}: {error}"[:200]
    step_validation_report[text] = outcome
    print("passed" if outcome["passed"] else "FAILED", text, "| measured:", outcome["measured"])
"""

_VALIDATION_RESULT = r"""
(
    f"**{sum(outcome['passed'] for outcome in step_validation_report.values())} of {len(step_validation_report)} "
    f"criteria hold.**"
    + "".join(
        f"\n- not so: `{text}` (measured: {outcome['measured']})"
        for text, outcome in step_validation_report.items()
        if not outcome["passed"]
    )
)
"""
