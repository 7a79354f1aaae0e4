"""The tags of each payload: its root, what is text, what is a list, what only other shapes of it use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from detent.flows.notebook.payloads.aliases import tag_name
from detent.flows.notebook.payloads.kinds import PayloadKind
from detent.flows.notebook.payloads.values import ActionKind

CODE = "add-code2run"
ROOTS: Mapping[str, PayloadKind] = {
    "stages": "T1",
    "workflow": "T1",
    "steps": "T2",
    "behavior": "T3",
    "actions": "T4",
    "reflection": "T5",
    "stage_reflection": "T6",
}
ACTION_TAGS: Mapping[str, ActionKind] = {
    "update-project-title": "update_title",
    "update-section-title": "update_section_title",
    "update-step-title": "update_step_title",
    "add-section": "add_section",
    "add-text": "add_text",
    CODE: "add_code",
    "communication": "communicate",
    "note": "note",
}
"""Tags of actions and their kinds. `note` is our own: an action of the JSON forms that is journaled only."""


@dataclass(frozen=True)
class Vocabulary:
    """The tags of one kind of payload, in their canonical forms."""

    kind: PayloadKind
    roots: frozenset[str]
    texts: frozenset[str]
    """Elements that hold text, whatever it looks like."""
    containers: frozenset[str]
    """Elements that hold elements."""
    lists: frozenset[str] = field(default=frozenset())
    """Containers that may not be cut: what is missing in them cannot be seen afterwards."""

    @cached_property
    def tags(self) -> frozenset[str]:
        """Every tag, the root included."""
        return self.roots | self.texts | self.containers

    @cached_property
    def follower(self) -> re.Pattern[str]:
        """What may follow the closing tag of a text: a known tag, a comment, or the end of what there is."""
        names = sorted({spelling for tag in self.tags for spelling in _spellings(tag)}, key=len, reverse=True)
        known = "|".join(re.escape(name) for name in names)
        return re.compile(rf"\s*(?:\Z|<!--|</?(?:{known})(?=[\s/>])|</?[\w.-]*\Z)")

    def knows(self, tag: str) -> bool:
        """Whether a tag belongs to the payload, aliases included."""
        return tag_name(tag) in self.tags


def _spellings(tag: str) -> tuple[str, ...]:
    return (tag, tag.replace("-", "_"), tag.replace("behavior", "behaviour"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HAPPENED = "overview background key_findings"
_PCS = "predictability computability stability"
_VARIABLE_LISTS = "verified_artifacts required_variables variables_to_include variables_to_summarize"
_TRACKED = "produced in_progress remaining"

VOCABULARIES: Mapping[PayloadKind, Vocabulary] = {
    "T1": Vocabulary(
        "T1",
        roots=_words("stages workflow"),
        texts=_words("title description goal variable focus goals"),
        containers=_words("remaining stage verified_artifacts required_variables"),
        lists=_words("remaining stage verified_artifacts required_variables"),
    ),
    "T2": Vocabulary(
        "T2",
        roots=_words("steps"),
        texts=_words(f"goal variable focus goals {_PCS} {_HAPPENED}"),
        containers=_words(f"remaining step pcs_considerations whathappened context_filter {_VARIABLE_LISTS}"),
        lists=_words(f"remaining step pcs_considerations context_filter {_VARIABLE_LISTS}"),
    ),
    "T3": Vocabulary(
        "T3",
        roots=_words("behavior"),
        texts=_words(f"agent task variable effects artifact criterion {_HAPPENED}"),
        containers=_words(f"inputs outputs acceptance whathappened context_filter {_VARIABLE_LISTS}"),
        lists=_words(f"inputs outputs acceptance context_filter {_VARIABLE_LISTS}"),
    ),
    "T4": Vocabulary("T4", roots=_words("actions"), texts=frozenset(ACTION_TAGS), containers=frozenset()),
    "T5": Vocabulary(
        "T5",
        roots=_words("reflection"),
        texts=_words(
            "artifact criterion code_execution errors_found warnings_found status reasoning next_state "
            f"variable save_current_effect {_HAPPENED} if_continuing_behavior if_moving_forward"
        ),
        containers=_words(
            "evaluation artifacts_produced acceptance_validation execution_quality goal_achievement "
            "new_variable decision context_for_next variables_produced whathappened recommendations_for_next "
            f"outputs_tracking_update {_TRACKED}"
        ),
        lists=_words(
            "evaluation artifacts_produced acceptance_validation new_variable context_for_next "
            f"variables_produced outputs_tracking_update {_TRACKED}"
        ),
    ),
    "T6": Vocabulary(
        "T6",
        roots=_words("stage_reflection"),
        texts=_words(
            "step_id completion_status finding completed_steps remaining_steps percentage artifact "
            "goal_status reasoning new_goal next_state next_focus summary quality how_to_obtain "
            f"stage_experience {_PCS} "
            # the long shape
            "progress_percentage required_artifact status current_goal needs_update update_reasoning "
            "proposed_goal stage_experience_variable description application resolution prevention practice "
            "pitfall next_step_id next_step_focus recommendation type value_summary replacement "
            "safe_to_delete used_by_next_stage used_by_next_step what_should_do"
        ),
        containers=_words(
            "step_evaluation artifacts_produced key_findings stage_assessment progress "
            "stage_artifacts_status stage_goal_review decision variable_management "
            "extracted_from_notebook retain deprecate gaps variable missing "
            f"outputs_update {_TRACKED} pcs_check "
            # the long shape
            "step_summary stage_progress stage_goal_achievement experience_summary lessons_learned lesson "
            "challenges_encountered challenge best_practices_identified pitfalls_to_avoid context_for_next "
            "if_continuing_stage if_moving_forward if_moving_to_next_stage variables_to_carry_forward "
            "recommendations outputs_tracking_update stage_level variables_extracted_from_notebook "
            "variables_to_retain variables_to_deprecate variables_required_for_next variable_gap_analysis "
            "pcs_alignment_check plan_new_steps"
        ),
        lists=_words(
            "step_evaluation artifacts_produced key_findings stage_assessment stage_artifacts_status "
            "variable_management extracted_from_notebook retain deprecate gaps variable missing "
            f"outputs_update {_TRACKED} "
            "experience_summary outputs_tracking_update stage_level variables_extracted_from_notebook "
            "variables_to_retain variables_to_deprecate variables_required_for_next variable_gap_analysis "
            "plan_new_steps"
        ),
    ),
}


def vocabulary_of(root: str) -> Vocabulary | None:
    """The vocabulary of the payload that has this root element, alias included."""
    kind = ROOTS.get(tag_name(root))
    return None if kind is None else VOCABULARIES[kind]
