"""The file of a new refinement."""

from __future__ import annotations

FILE = "refine.py"
"""In a folder that is a refinement."""

STARTER = '''"""A sentence is rewritten until it is short enough. Replace the four functions by your own."""

from detent.refine import Evaluation, Issue, Part, ValidationReport, refine_flow


def plan(request, feedback, previous):
    """Choose how many words the sentence may have."""
    return {"words": request["words"] if previous is None else previous.plan["words"] - 1}


def validate(request, plan):
    """A sentence needs at least one word."""
    if plan["words"] >= 1:
        return ValidationReport()
    return ValidationReport((Issue("error", "too_short", "no word is left"),))


def write(request, plan, feedback, previous):
    """Keep the first words."""
    return " ".join(request["text"].split()[: plan["words"]])


def judge(request, plan, text):
    """Every character over the limit costs five points."""
    return Evaluation(max(0, 100 - 5 * max(0, len(text) - request["limit"])))


shorten = refine_flow(
    "NAME",
    planner=Part(plan, note=lambda plan: f"{plan['words']} words"),
    validator=validate,
    implementer=Part(write, note=lambda text: f"{len(text)} characters"),
    judge=judge,
    max_iterations=5,
)
'''

REQUEST = """{
  "request": {
    "text": "Plan it, check it, do it, and judge it until it is good enough.",
    "words": 12,
    "limit": 40
  }
}
"""
"""What the starter refines."""
