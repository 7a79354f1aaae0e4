"""Values of all six payloads, for the tests of this room: any text where a text may stand."""

from __future__ import annotations

from hypothesis import strategies as st

from detent.flows.notebook.payloads.checks import COMMUNICATE_TO
from detent.flows.notebook.payloads.values import (
    Action,
    Actions,
    ArtifactJudged,
    BehaviorPlan,
    BehaviorReflection,
    ContextFilter,
    CriterionJudged,
    Deprecated,
    Extracted,
    Finding,
    Gap,
    GoalReview,
    Named,
    PcsTexts,
    PlannedStage,
    PlannedStep,
    Retained,
    StagePlan,
    StageReflection,
    StepPlan,
    Tracking,
    VariableManagement,
    WhatHappened,
)

PIECES = [
    "RMSE < 25000", "R² > 0.85", "&", "&lt;", "&amp;amp;", "<b>x</b>", "</goal>", "<stage id='a'>",
    "</actions>", "</add-code2run>", "<![CDATA[", "]]>", "<!-- c -->", "<!DOCTYPE x>", "<?x ?>", '"', "'",
    "\n", "\r", "\t", " ", "数据集成功加载", "\u3000", "\u00a0", "\u2028", "😀", "```xml", "{", "x = 1", "#",
]  # fmt: skip
"""What is hard to keep in XML, or looks like a payload."""

texts = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6), max_size=6
).map("".join)
filled = texts.filter(str.strip)
words = st.text(st.characters(categories=["Ll", "Nd"]), max_size=8)
ids = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
names = st.sampled_from(
    [
        "raw_dataset",
        "X_train",
        "été",
        "数据",
        "models/model.pkl",
        "outputs/eda/",
        "./top.csv",
        "a/b c.png",
        "_x",
    ]
)
codes = st.lists(
    texts.map(lambda text: f"x = {text!r}")
    | texts.map(lambda text: f"# {' '.join(text.split())}")
    | st.sampled_from(["if a < b and c > d:\n    pass", "y = x & 3", "%matplotlib inline", "await f()", ""]),
    max_size=4,
).map("\n".join)


def some(each: st.SearchStrategy, least: int = 0, most: int = 3) -> st.SearchStrategy:
    """Tuples."""
    return st.lists(each, min_size=least, max_size=most).map(tuple)


named = st.builds(Named, names, texts)
pcs = st.builds(PcsTexts, filled, filled, filled)
happened = st.none() | st.builds(WhatHappened, texts, texts, texts)
filters = st.none() | st.builds(
    ContextFilter,
    some(names),
    some(st.tuples(names, st.sampled_from(["shape_only", "describe_only", "last_5_only"]))),
)
stages = st.lists(
    st.builds(PlannedStage, ids, filled, filled, some(named, 1), some(named), st.booleans()),
    min_size=1,
    max_size=12,
    unique_by=lambda stage: stage.id,
).map(tuple)
steps = st.lists(
    st.builds(PlannedStep, ids, filled, filled, some(named, 1), pcs, some(named)),
    min_size=1,
    max_size=12,
    unique_by=lambda step: step.id,
).map(tuple)
stage_plans = st.builds(StagePlan, stages, texts, texts, texts, texts)
step_plans = st.builds(StepPlan, steps, texts, texts, happened, filters)


@st.composite
def behavior_plans(draw) -> BehaviorPlan:
    step = draw(ids)
    number = draw(st.integers(1, 99))
    return BehaviorPlan(
        f"{step}_b{number}", step, draw(filled), draw(filled), draw(some(named, 1)), draw(some(filled, 1)),
        draw(some(named)), draw(st.booleans()), draw(happened), draw(filters),
    )  # fmt: skip


written = st.sampled_from(
    ["update_title", "update_section_title", "update_step_title", "add_section", "add_text"]
)
actions = st.builds(
    Actions,
    some(
        st.builds(Action, written, texts)
        | st.builds(Action, st.just("add_code"), codes)
        | st.builds(Action, st.just("communicate"), texts, to=st.sampled_from(COMMUNICATE_TO))
        | st.builds(Action, st.just("note"), texts, name=words),
        1,
        6,
    ),
)
judged = st.builds(ArtifactJudged, names, st.sampled_from(["complete", "incomplete", "missing"]))
criteria = st.builds(CriterionJudged, texts, st.sampled_from(["passed", "failed", "partial"]))
trackings = st.builds(Tracking, some(names), some(names), some(names))
goals = st.sampled_from(["achieved", "partial", "not_achieved"])


@st.composite
def behavior_reflections(draw) -> BehaviorReflection:
    complete = draw(st.booleans())
    return BehaviorReflection(
        complete, draw(some(judged)), draw(some(criteria)),
        draw(st.sampled_from(["success", "failed", "partial"])), draw(goals),
        "STEP_COMPLETED" if complete else "STEP_RUNNING", draw(texts), draw(trackings), draw(texts),
        draw(texts), draw(texts), draw(some(names)), draw(some(named)), draw(happened), draw(texts),
        draw(texts),
    )  # fmt: skip


extracted = st.builds(
    Extracted, names, words, words, texts, st.sampled_from([None, "complete", "partial", "needs_validation"])
)
deprecated = st.builds(
    Deprecated, names, st.sampled_from([None, "raw_dataset"]), st.sampled_from([None, True, False])
)
gaps = st.builds(Gap, names, ids, st.sampled_from(["critical", "important"]), filled)
managements = st.builds(
    VariableManagement, some(extracted), some(st.builds(Retained, names, words)), some(deprecated), some(gaps)
)


@st.composite
def stage_reflections(draw) -> StageReflection:
    complete = draw(st.booleans())
    experience = draw(st.none() | texts) if complete else None
    return StageReflection(
        complete, draw(ids), draw(st.sampled_from(["complete", "incomplete"])), draw(st.integers(0, 12)),
        draw(st.integers(0, 12)), draw(st.floats(0, 100)), draw(some(judged)), draw(goals),
        "STAGE_COMPLETED" if complete else "STEP_RUNNING", draw(texts), draw(managements), draw(trackings),
        draw(pcs), draw(texts), draw(texts),
        draw(some(st.builds(Finding, texts, st.sampled_from(["high", "medium", "low"])))),
        draw(st.none() | st.builds(GoalReview, st.booleans(), texts, texts)), experience,
        draw(ids) if experience is not None else None,
    )  # fmt: skip


PAYLOADS = {
    "T1": stage_plans,
    "T2": step_plans,
    "T3": behavior_plans(),
    "T4": actions,
    "T5": behavior_reflections(),
    "T6": stage_reflections(),
}
