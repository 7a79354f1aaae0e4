"""A text is refined until a checker is content: no music, no model, no key."""

from detent.refine import Evaluation, Issue, ValidationReport, refine_flow


def plan(request, feedback, previous):
    """Choose the words to leave out: one more after each failure."""
    return {"leave_out": request["fillers"][: len(feedback) + 1]}


def validate(request, plan):
    """Only fillers may go."""
    wrong = [word for word in plan["leave_out"] if word not in request["fillers"]]
    return ValidationReport(tuple(Issue("error", "filler", f"'{word}' is no filler") for word in wrong))


def rewrite(request, plan, feedback, previous):
    """Write the text without them."""
    return " ".join(word for word in request["text"].split() if word not in plan["leave_out"])


def check(request, plan, text):
    """Each filler that is left costs 25 points."""
    return Evaluation(100 - 25 * sum(word in request["fillers"] for word in text.split()))


clear = refine_flow("clear", planner=plan, validator=validate, implementer=rewrite, judge=check)
