"""How later iterations of a recipe differ: what failed for one column must not fail the cell again."""

from __future__ import annotations

from detent.flows.notebook.recipes.recipe import Kitchen

ATTEMPT = '''
def attempt(compute, otherwise):
    """What is computed, or else the substitute; the reason is printed."""
    try:
        return compute()
    except Exception as error:
        why = str(error).strip() or "no reason given"
        cause = "" if len(why) < 200 else f" ... {why.splitlines()[-1][-200:]}"
        print(f"Substituted after {type(error).__name__}: {why[:200]}{cause}")
        return otherwise()
'''


def attempted(kitchen: Kitchen, code: str, otherwise: str) -> str:
    """Write an expression; in a retry, with a substitute for when it raises."""
    return code if kitchen.iteration == 1 else f"attempt(lambda: {code}, lambda: {otherwise})"
