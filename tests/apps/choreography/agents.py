"""A model server whose agents know the prompt alone: good ones, plausible bad ones, one beside the point."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.adapters.models.server import chat
from tests.apps.choreography.domain.test_brief import reader_of_the_prompt

Agent = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""From what is shown and the schema of the answer to the answer."""


# -- planners -----------------------------------------------------------------------------------------------


def planner(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Follows the advice of the prompt."""
    return reader_of_the_prompt(json.dumps(shown), schema)


def changed(change: Callable[[list[dict[str, Any]]], None]) -> Agent:
    """A planner that would be good but for one idea of its own."""

    def plan(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
        answer = planner(shown, schema)
        change(answer["sections"])
        return answer

    return plan


@changed
def all_strobed(sections: list[dict[str, Any]]) -> None:
    """Every section strobes."""
    for section in sections:
        section["channels"]["shutter"] = "strobe_fast"


@changed
def against_the_music(sections: list[dict[str, Any]]) -> None:
    """What belongs to the loudest goes to the quietest, and so on."""
    by_energy = sorted(sections, key=lambda section: section["energy_level"])
    looks = [(section["templates"], section["params"]) for section in by_energy]
    for section, (templates, params) in zip(by_energy, reversed(looks), strict=True):
        section["templates"], section["params"] = templates, params


@changed
def one_template(sections: list[dict[str, Any]]) -> None:
    """The same template from the first bar to the last."""
    for section in sections:
        section["templates"] = ["tide_tilt"]


def fourteen_strobes(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Fourteen sections as if for a quiet song, all strobed: not one breaks a rule of the validation."""
    bars, count = shown["bars"], 14
    edges = [1 + bars * number // count for number in range(count + 1)]
    return {
        "sections": [
            {
                "name": f"Part {number + 1}", "start_bar": edges[number], "end_bar": edges[number + 1] - 1,
                "section_role": "verse", "energy_level": 50, "templates": ["pulse_steps"],
                "params": {"intensity": "SMOOTH", "speed": "SLOW"}, "base_pose": "UP", "reasoning": "bright",
                "channels": {"shutter": "strobe_fast", "color": "blue", "gobo": "open"},
            }
            for number in range(count)
        ],
        "overall_strategy": "strobe", "template_variety_score": 10, "energy_alignment_score": 10,
    }  # fmt: skip


def no_plan(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Milliseconds in place of bars: breaks the schema."""
    return {"sections": [{"name": "Intro", "start_ms": 0, "end_ms": 5000}]}


# -- implementers -------------------------------------------------------------------------------------------


def _parts(shown: Mapping[str, Any], targets: Mapping[int, list[str]]) -> Any:
    sections = []
    for line in shown["plan"]:
        row = re.match(r"(.+) \(\w+\), bars (\d+)-(\d+): ([\w +]+),", line)
        assert row is not None, line
        name, start, end, templates = row.groups()
        chosen = templates.split(" + ")
        for place, template in enumerate(chosen):
            target = targets[len(chosen)][place]
            sections.append({
                "name": f"{name}__{template}_{target}", "plan_section_name": name, "start_bar": int(start),
                "end_bar": int(end), "template_id": template,
                "params": {"intensity": "SMOOTH", "speed": "SLOW"}, "base_pose": "AUDIENCE_CENTER",
                "targets": [target], "layer_priority": place,
                "entry_transition": {"mode": "glide", "duration_bars": 0.5}, "reasoning": "from the plan",
            })  # fmt: skip
    return {
        "sections": sections, "total_duration_bars": shown["bars"], "quantization_applied": True,
        "timing_precision": "bar_aligned", "overall_strategy": "", "implementation_approach": "",
    }  # fmt: skip


def implementer(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Shares the heads between layers."""
    return _parts(shown, {1: ["ALL"], 2: ["LEFT", "RIGHT"], 3: ["MH1", "MH2", "MH3"]})


def all_on_all(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """Every layer on every head: they conflict."""
    return _parts(shown, {1: ["ALL"], 2: ["ALL", "ALL"], 3: ["ALL", "ALL", "ALL"]})


def altered(change: Callable[[dict[str, Any]], None]) -> Agent:
    """An implementer that would be good but for one idea of its own."""

    def implement(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
        answer = implementer(shown, schema)
        for section in answer["sections"]:
            change(section)
        return answer

    implement.__name__ = change.__name__
    return implement


@altered
def of_nothing(section: dict[str, Any]) -> None:
    """Parts of sections that the plan does not have: nothing says which light they are."""
    section["plan_section_name"] = "Nothing"


@altered
def all_held(section: dict[str, Any]) -> None:
    """The calmest template from the first bar to the last, whatever was planned."""
    section["template_id"] = "lantern_hold"


@altered
def two_heads(section: dict[str, Any]) -> None:
    """Half of the heads stay dark."""
    section["targets"] = ["MH1"] if section["layer_priority"] == 0 else ["MH2"]


@altered
def halves_of_bars(section: dict[str, Any]) -> None:
    """A bar that is no whole number for us, and one for JSON Schema."""
    section["start_bar"] = float(section["start_bar"])


@changed
def half_a_character(sections: list[dict[str, Any]]) -> None:
    """An emoji cut in two, which no file can hold."""
    sections[0]["name"] += "\ud83d"


# -- judges and validators ----------------------------------------------------------------------------------


def scored(score: float) -> Agent:
    """A judge that gives every category of the prompt the same score."""

    def judge(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
        rows = [{"category": name, "score": score, "reasoning": "so"} for name in shown["categories"]]
        return {"category_scores": rows, "summary": "so", "overall_score": 100, "pass_threshold": True}

    return judge


def finds_half_a_character(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A validator whose only warning cannot be written."""
    return {"issues": [{"severity": "warning", "rule": "emoji", "message": "\ud83d"}]}


def finds_nothing(shown: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A validator that is content."""
    return {"issues": []}


# -- the server ---------------------------------------------------------------------------------------------


class ModelServer(ThreadingHTTPServer):
    """Speaks the OpenAI protocol; each question goes to the agent as text, no object of ours with it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.agent = agent
        self.prompts: list[str] = []
        self.schemas: list[Any] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
        self.server.prompts.append(prompt)
        self.server.schemas.append(schema)
        shown = json.JSONDecoder().raw_decode(prompt, prompt.rindex("INPUTS\n") + len("INPUTS\n"))[0]
        answer = json.dumps(self.server.agent(shown, schema))
        content = json.dumps(chat(answer)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def serving(agent: Agent):
    """A server at work."""
    server = ModelServer(agent)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
