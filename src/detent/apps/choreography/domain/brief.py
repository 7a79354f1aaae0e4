"""What agents are shown of a song and a stage, and what they must answer: briefs, JSON Schemas, parsing.

A brief counts in bars, never in milliseconds or channel values, and fits a prompt: at most 12 KiB of JSON.
The schemas close every vocabulary, and say in words what would be an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from detent.apps.choreography.domain.arrangement import in_order, named_roles
from detent.apps.choreography.domain.plan import AgentImplementation, AgentPlan, Part, SectionPlan
from detent.apps.choreography.domain.rubric import (
    ALIGNMENT,
    AUTOMATIC,
    COLOR,
    COMPLEXITY,
    COVERAGE,
    ENERGY,
    GOBO,
    SHUTTER,
    VARIETY,
)
from detent.apps.choreography.domain.song import Song
from detent.apps.choreography.domain.stage import CHANNEL_NAMES, Stage
from detent.apps.choreography.domain.targets import target_sets
from detent.apps.choreography.domain.template import Template
from detent.apps.choreography.domain.validation import ERRORS
from detent.apps.choreography.domain.violations import parsed
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, INTENSITIES, SHUTTERS, SPEEDS

MOST_BYTES = 12 * 1024
CUT = "…[cut]"
MOST_PLANNED = 24
"""Sections that an agent is asked for at most: twice those of a song. A small model might never stop."""
MOODS = ("warm", "cool", "neutral")
ADVICE = (
    "Follow the song's sections: start and end where they do.",
    "Choose templates whose energy range holds the section's measured energy, recommended for its role.",
    "Intensity SMOOTH below energy 40, DRAMATIC up to 75, INTENSE above.",
    "Give about half of the sections, the loudest, two templates: a base and an accent.",
    "Do not repeat a template in the next section; use many different ones.",
    "Above energy 70 use a warm color and a shutter that strobes, in at most 30 % of all bars; "
    "below 40 keep the shutter open.",
    "Use 3 to 5 runs of one color, none in more than half of the bars; above energy 80 a dense gobo; keep "
    "half of the bars with an open gobo.",
)
"""How a plan scores well, for those who know the prompt alone."""

MEASURES = {
    ALIGNMENT: "sections start where the song's sections do, and lie on its 4-bar grid",
    ENERGY: "templates and intensity fit the measured energy, none calmer than where it is 30 quieter",
    VARIETY: "many different templates, none all along, 40 to 60 % of the sections layered",
    COVERAGE: "every bar has a section, no head has two, all targets exist, nothing is past the end",
    SHUTTER: "strong when loud, calm when quiet, at most 30 % of the bars strobe, none closed",
    COLOR: "3 to 5 runs of one color, none in more than half of the bars, no cool color when loud",
    GOBO: "open in 50 to 60 % of the bars, dense above energy 80",
    COMPLEXITY: "about 1.5 templates per section, no jumps above 60 degrees without a glide, 5 movements",
}
"""What each category measures."""
FAILURES = dict(
    zip(
        AUTOMATIC,
        (
            "two sections use one head in the same bar",
            "no section is layered, with two heads or more",
            "more than 60 % of the bars strobe",
            "the color changes so often that there are more than 15 runs",
        ),
        strict=True,
    )
)


# -- briefs ---------------------------------------------------------------------------------------------


def planner_brief(song: Song, stage: Stage, feedback: str = "", **more: Any) -> dict[str, Any]:
    """What a planner is shown. Feedback, as text, is cut from its beginning if there is no room for all."""
    return _fitted({**_song(song), **_stage(stage), "advice": list(ADVICE), **more}, song, feedback)


def implementer_brief(
    song: Song,
    plan: AgentPlan,
    stage: Stage,
    feedback: str = "",
    previous: AgentImplementation | None = None,
) -> dict[str, Any]:
    """What an implementer is shown: the plan, heads and targets, and the implementation to be repaired."""
    brief = {**_song(song), **_heads(stage), "plan": _plan(plan, stage)}
    brief["layers"] = (
        "One implementation section for each template of a plan section, on the bars of the plan section. "
        "Templates that run in the same bar must not share a head."
    )
    if previous is not None:
        brief["previous implementation"] = _implementation(previous)
    return _fitted(brief, song, feedback)


def judge_brief(
    song: Song, plan: AgentPlan, implementation: AgentImplementation, stage: Stage
) -> dict[str, Any]:
    """What a judge is shown: the rubric, the plan and its implementation."""
    brief = {
        **_song(song),
        "heads": stage.heads,
        "categories": MEASURES,
        "automatic failures": FAILURES,
        "template energies": {
            name: _range(stage.library[name])
            for name in sorted({name for section in plan.sections for name in section.templates})
            if name in stage.library
        },
        "plan": _plan(plan, stage),
        "implementation": _implementation(implementation),
    }
    return _fitted(brief, song, "")


def size_of(brief: Mapping[str, Any]) -> int:
    """Bytes of a brief as JSON."""
    return len(json.dumps(brief, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _song(song: Song) -> dict[str, Any]:
    return {
        "tempo": f"{song.tempo_bpm:.0f} BPM, {song.beats_per_bar} beats in a bar, {song.key}",
        "bars": song.bars,
        "song sections": [
            f"{name} ({role}), bars {section.start_bar}-{section.end_bar}, energy "
            f"{song.energy(section.start_bar, section.end_bar):.0f}"
            for section, (name, role) in zip(song.sections, named_roles(song), strict=True)
        ],
        "energy per bar": _energies(song, 1),
    }


def _energies(song: Song, step: int) -> str:
    means = (song.energy(bar, bar + step - 1) for bar in range(1, song.bars + 1, step))
    numbers = " ".join(f"{energy:.0f}" for energy in means)
    return numbers if step == 1 else f"(mean of every {step} bars) {numbers}"


def _heads(stage: Stage) -> dict[str, Any]:
    groups = [name for name in stage.targets if not name.startswith("MH")]
    single = "MH1" if stage.heads == 1 else f"MH1 to MH{stage.heads}, from left to right"
    return {"heads": stage.heads, "targets": f"{', '.join(groups)}; one head: {single}"}


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        **_heads(stage),
        "templates": [_template(template) for template in stage.library.values()],
        **{f"{channel}s": _choices(channel, stage) for channel in CHANNEL_NAMES},
    }


def _choices(channel: str, stage: Stage) -> str:
    """The names of a channel with what counts about them, or that it is not chosen."""
    if not stage.features.enabled(channel):
        return f"not in use: always {stage.default(channel)}"
    if channel == "shutter":
        return "energy 1-10: " + ", ".join(f"{name} {value.energy}" for name, value in SHUTTERS.items())
    names = stage.names(channel)
    if channel == "gobo":
        return "density 1-10: " + ", ".join(f"{name} {GOBOS[name].density}" for name in names)
    by_mood = {mood: [name for name in names if COLOURS[name].mood == mood] for mood in MOODS}
    return "; ".join(f"{mood}: {', '.join(of_mood)}" for mood, of_mood in by_mood.items() if of_mood)


def _template(template: Template) -> str:
    about = template.metadata.description if template.metadata else ""
    roles = ", ".join(template.metadata.recommended_sections) if template.metadata else ""
    return (
        f"{template.template_id} ({template.layer_role}, energy {_range(template)}, for {roles or 'any'}): "
        f"{about[:100]}"
    )


def _range(template: Template) -> str:
    low, high = template.metadata.energy_range if template.metadata else (0, 100)
    return f"{low:g}-{high:g}"


def _plan(plan: AgentPlan, stage: Stage) -> list[str]:
    return [_planned(section, stage) for section in in_order(plan.sections)]


def _planned(section: SectionPlan, stage: Stage) -> str:
    params, shown = section.params, stage.channels(section)
    return (
        f"{section.name} ({section.section_role}), bars {section.start_bar}-{section.end_bar}: "
        f"{' + '.join(section.templates)}, {params.intensity}, {params.speed}, {section.base_pose}, "
        f"shutter {shown.shutter}, color {shown.color}, gobo {shown.gobo}"
    )


def _implementation(implementation: AgentImplementation) -> list[str]:
    return [
        f"{part.plan_section_name}: {part.template_id} on {'+'.join(part.targets)}, bars "
        f"{part.start_bar}-{part.end_bar}, {part.entry_transition.mode}"
        for part in in_order(implementation.sections)
    ]


def _fitted(brief: dict[str, Any], song: Song, feedback: str) -> dict[str, Any]:
    """A brief within its size: long songs with fewer numbers, long lists and old feedback cut."""
    step = 1
    while size_of({"energy": brief["energy per bar"]}) > MOST_BYTES // 6:
        step *= 2
        brief["energy per bar"] = _energies(song, step)
    while size_of(brief) > MOST_BYTES:
        lists = [name for name, value in brief.items() if isinstance(value, list) and len(value) > 2]
        if not lists:
            break
        longest = max(lists, key=lambda name: size_of({name: brief[name]}))
        rows = [row for row in brief[longest] if row != CUT]
        brief[longest] = [*rows[: len(rows) - 1 - len(rows) // 20], CUT]
    if feedback:
        brief["feedback"] = feedback
        while (excess := size_of(brief) - MOST_BYTES) > 0 and len(brief["feedback"]) > len(CUT):
            brief["feedback"] = CUT + brief["feedback"].removeprefix(CUT)[max(excess // 4, 1) + len(CUT) :]
    return brief


# -- schemas --------------------------------------------------------------------------------------------


def plan_schema(stage: Stage) -> dict[str, Any]:
    """The JSON Schema of a plan, its vocabularies closed and the errors in words."""
    schema = _schema_of(AgentPlan)
    schema["description"] = "A light show in bars. A plan that breaks a rule is refused: " + " ".join(ERRORS)
    schema["required"] = ["sections"]
    schema["properties"]["sections"] |= {"minItems": 1, "maxItems": MOST_PLANNED}
    definitions = schema["$defs"]
    _close(definitions["Params"], stage)
    channels = definitions["Channels"]["properties"]
    channels["shutter"]["enum"] = list(SHUTTERS)
    channels["color"]["enum"] = list(stage.names("color"))
    channels["gobo"]["enum"] = list(stage.names("gobo"))
    section = definitions["SectionPlan"]
    section["properties"]["base_pose"]["enum"] = list(stage.poses)
    section["properties"]["end_bar"] |= {
        "minimum": 1,
        "description": "The last bar, inclusive; the next section starts at the bar after it.",
    }
    templates = section["properties"]["templates"]
    templates |= {"uniqueItems": True, "maxItems": min(4, stage.heads)}
    templates["items"] = {"enum": list(stage.library)}
    return schema


def implementation_schema(stage: Stage) -> dict[str, Any]:
    """The JSON Schema of an implementation."""
    schema = _schema_of(AgentImplementation)
    schema["description"] = (
        "A plan on heads. Every target exists, and no two sections have a head in common in the same bar. "
        "Every bar of the song has a section; none ends after the song."
    )
    definitions = schema["$defs"]
    _close(definitions["Params"], stage)
    properties = definitions["ImplementationSection"]["properties"]
    properties["base_pose"]["enum"] = list(stage.poses)
    properties["template_id"]["enum"] = list(stage.library)
    properties["targets"] |= {"items": {"enum": list(target_sets(stage.heads))}, "uniqueItems": True}
    return schema


def _schema_of(model: type[Part]) -> dict[str, Any]:
    """The schema of a model without titles, and without docstrings, which are for those who write code."""
    schema = model.model_json_schema()
    _strip(schema)
    return schema


def _strip(node: Any) -> None:
    if isinstance(node, dict):
        if "properties" in node:
            node.pop("description", None)
            for part in node["properties"].values():
                part.pop("title", None)
        node.pop("title", None) if isinstance(node.get("title"), str) else None
        for part in node.values():
            _strip(part)
    elif isinstance(node, list):
        for part in node:
            _strip(part)


def _close(params: dict[str, Any], stage: Stage) -> None:
    """Close the vocabularies of the parameters of a section."""
    properties = params["properties"]
    properties["intensity"]["enum"] = list(INTENSITIES)
    properties["speed"]["enum"] = list(SPEEDS)
    for name in ("start_pose", "end_pose"):
        properties[name]["anyOf"] = [{"enum": list(stage.poses)}, {"type": "null"}]


# -- parsing --------------------------------------------------------------------------------------------


def parse_plan(value: Any) -> AgentPlan:
    """Read a plan.

    Raises:
        SchemaViolation: everything that is wrong with it, with its place.
    """
    return parsed(AgentPlan, value, "plan")


def parse_implementation(value: Any) -> AgentImplementation:
    """Read an implementation.

    Raises:
        SchemaViolation: everything that is wrong with it, with its place.
    """
    return parsed(AgentImplementation, value, "implementation")
