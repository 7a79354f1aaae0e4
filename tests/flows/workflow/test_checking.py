"""Every code a workflow file can be refused or warned with: a broken file each, with only that code. D-71."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

import pytest

from detent.authoring.problem import DocumentError
from detent.dispatch.config import StepConfig
from detent.dispatch.executor import NO_MODEL
from detent.flows.workflow.checks import check_read
from detent.flows.workflow.reading import Read
from detent.flows.workflow.registry import Action, Agent, Generator
from detent.flows.workflow.search_path import WorkflowNotFound
from detent.kernel.errors import ConfigurationError
from tests.flows.workflow.files import INTENT, problems_of, read, registry, spec_of, text_of

CHILD = """\
version: "1.0"
name: child
inputs:
  order: {type: string}
  count: {type: integer, default: 1}
  color: {type: string, default: red, enum: [red, blue]}
  token: {type: string, secret: true}
steps:
  - {name: a, type: python, action: log, kwargs: {message: "${{ inputs.order }} ${{ inputs.count }}"}}
"""


def child(name: str, *runs: str) -> str:
    steps = [f"  - {{name: to-{one}, type: subworkflow, workflow: {one}}}\n" for one in runs]
    return f'version: "1.0"\nname: {name}\nsteps:\n  - {{name: a, type: checkpoint}}\n{"".join(steps)}'


@dataclass
class Case:
    """A broken file: what is wrong with it, and where."""

    code: str
    text: str
    at: tuple[int, int]
    path: str
    suggests: tuple[str, ...] = ()
    says: str = ""
    said: dict[str, Any] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)


def steps(
    code: str,
    text: str,
    at: tuple[int, int],
    path: str,
    suggests: tuple[str, ...] = (),
    says: str = "",
    head: str = "",
    children: dict[str, str] | None = None,
    **said: Any,
) -> Case:
    """A case of some steps; their first line is line 4 where nothing stands before them."""
    whole = text_of(textwrap.dedent(text).lstrip("\n"), head)
    return Case(code, whole, at, path, suggests, says, said, children or {})


CASES = [
    # -- names nobody registered
    steps("E001", "- {name: a, type: python, action: shp}", (4, 35), "steps[0].action", ("ship",)),
    steps("E001", "- {name: a, type: python, action: zzzz}", (4, 35), "steps[0].action", says="There are: "),
    steps(
        "E001",
        "- {name: a, type: python, action: ship, args: [x]}",
        (4, 35),
        "steps[0].action",
        ("post.rate", "post.send"),
        tools=["post.send", "post.rate"],
        says="tool 'post.rates'",
    ),
    steps("E002", "- {name: a, type: agent, agent: reviewr}", (4, 33), "steps[0].agent", ("reviewer",)),
    steps(
        "E003",
        "- {name: a, type: agent, agent: reviewer, context: changed_file}",
        (4, 52),
        "steps[0].context",
        ("changed_files",),
    ),
    steps(
        "E003",
        "- {name: a, type: generate, generator: summary, context: nobody}",
        (4, 58),
        "steps[0].context",
    ),
    steps(
        "E004", "- {name: a, type: generate, generator: sumary}", (4, 40), "steps[0].generator", ("summary",)
    ),
    steps(
        "E005", "- {name: a, type: subworkflow, workflow: comit}", (4, 42), "steps[0].workflow", ("commit",)
    ),
    steps(
        "E013",
        "- {name: a, type: python, action: log, rollback: shipback}",
        (4, 50),
        "steps[0].rollback",
        ("ship_back", "ship"),
    ),
    steps("E013", "- {name: a, type: agent, agent: reviewer, rollback: zz}", (4, 53), "steps[0].rollback"),
    steps(
        "E014",
        "- {name: a, type: checkpoint, requires: [git, gti]}",
        (4, 47),
        "steps[0].requires[1]",
        ("git",),
    ),
    steps(
        "E014",
        "- {name: a, type: checkpoint, requires: ['git:x']}",
        (4, 42),
        "steps[0].requires[0]",
        ("git",),
        says="nothing after a colon",
    ),
    steps(
        "E014",
        "- {name: a, type: checkpoint, requires: [env]}",
        (4, 42),
        "steps[0].requires[0]",
        says="'env:…'",
    ),
    steps(
        "E015", "- {name: a, type: validate, stages: [lint, tset]}", (4, 44), "steps[0].stages[1]", ("test",)
    ),
    # -- expressions
    steps("E006", "- {name: a, type: checkpoint, when: 1 ==}", (4, 41), "steps[0].when"),
    steps("E006", "- {name: a, type: checkpoint, when: shout('x')}", (4, 37), "steps[0].when"),
    steps("E006", "- {name: a, type: checkpoint, when: '  ${{ shout(1) }}'}", (4, 44), "steps[0].when"),
    steps(
        "E006",
        "- {name: a, type: python, action: log, kwargs: {message: 'x ${{ 1 + 2 }}'}}",
        (4, 67),
        "steps[0].kwargs.message",
    ),
    steps(
        "E006", "- {name: a, type: checkpoint, checkpoint_id: 'at ${{ 1'}", (4, 50), "steps[0].checkpoint_id"
    ),
    steps(
        "E006",
        """
        - name: a
          type: python
          action: log
          kwargs:
            message: |
              fine
              bad ${{ __import__('os') }}
        """,
        (10, 15),
        "steps[0].kwargs.message",
    ),
    steps(
        "E007",
        "- {name: a, type: checkpoint, when: inputs.mesage}",
        (8, 37),
        "steps[0].when",
        ("message",),
        head="inputs:\n  message: {type: string}\noutputs:\n  x: ${{ inputs.message }}\n",
    ),
    steps(
        "E007",
        "- {name: frist, type: checkpoint}\n- {name: b, type: checkpoint, when: steps.first.output}",
        (5, 37),
        "steps[1].when",
        ("frist",),
    ),
    steps(
        "E007",
        "- {name: a, type: checkpoint}",
        (4, 10),
        "outputs.x",
        says="Inputs: none",
        head="outputs:\n  x: ${{ inputs.y }}\n",
    ),
    steps(
        "E007",
        "- {name: a, type: checkpoint, when: 'default(steps.b.output, 1)'}\n",
        (4, 46),
        "steps[0].when",
        says="no step 'b'",
    ),
    steps(
        "E016",
        "- {name: a, type: checkpoint, when: steps.b.output}\n- {name: b, type: checkpoint}",
        (4, 37),
        "steps[0].when",
        says="comes later",
    ),
    steps(
        "E016", "- {name: a, type: checkpoint, when: steps.a.output}", (4, 37), "steps[0].when", says="itself"
    ),
    steps(
        "E016",
        """
        - name: fan
          type: loop
          steps:
            - {name: a, type: checkpoint}
            - {name: b, type: checkpoint, when: steps.a.output}
        """,
        (8, 41),
        "steps[0].steps[1].when",
        says="in parallel",
    ),
    steps(
        "E016",
        """
        - {name: each, type: loop, for_each: [1], steps: [{name: a, type: checkpoint}]}
        - {name: b, type: checkpoint, when: steps.a.output}
        """,
        (5, 37),
        "steps[1].when",
        ("each",),
        says="inside the loop 'each', once per iteration",
    ),
    steps(
        "E016",
        """
        - {name: each, type: loop, for_each: [1], steps: [{name: a, type: checkpoint, when: steps.b.output},
                                                          {name: b, type: checkpoint}]}
        """,
        (4, 85),
        "steps[0].steps[0].when",
        says="comes later",
    ),
    steps(
        "E016",
        """
        - {name: each, type: loop, for_each: [1], steps: [{name: a, type: checkpoint, when: steps.each.output}
        ]}
        """,
        (4, 85),
        "steps[0].steps[0].when",
        says="contains this one",
    ),
    steps(
        "E016",
        """
        - {name: way, type: branch, options: [{when: 'true', step: {name: a, type: checkpoint}}]}
        - {name: b, type: checkpoint, when: steps.a.output}
        """,
        (5, 37),
        "steps[1].when",
        ("way",),
        says="Use the output of 'way'",
    ),
    steps(
        "E016",
        """
        - name: way
          type: branch
          options:
            - {when: steps.way.output, step: {name: a, type: checkpoint}}
        """,
        (7, 14),
        "steps[0].options[0].when",
        says="itself",
    ),
    steps(
        "E016",
        """
        - name: way
          type: branch
          options:
            - {when: "1 == 1.5", step: {name: a, type: checkpoint}}
            - {step: {name: b, type: checkpoint, when: steps.a.output}}
        """,
        (8, 48),
        "steps[0].options[1].step.when",
        says="another option",
    ),
    steps(
        "E016",
        """
        - {name: check, type: validate, stages: [lint], on_failure: {name: mend, type: checkpoint}}
        - {name: b, type: checkpoint, when: steps.mend.output}
        """,
        (5, 37),
        "steps[1].when",
        ("check",),
        says="on_failure",
    ),
    steps(
        "E016",
        "- {name: a, type: loop, until: steps.b.output, steps: [{name: c, type: checkpoint}]}\n"
        "- {name: b, type: checkpoint}",
        (4, 32),
        "steps[0].until",
        says="comes later",
    ),
    steps(
        "E017",
        "- {name: a, type: checkpoint, checkpoint_id: 'x-${{ item }}'}",
        (4, 53),
        "steps[0].checkpoint_id",
        says="inside a loop",
    ),
    steps("E017", "- {name: a, type: checkpoint, when: index}", (4, 37), "steps[0].when"),
    steps(
        "E017",
        "- {name: a, type: loop, for_each: [1], when: item, steps: [{name: c, type: checkpoint}]}",
        (4, 46),
        "steps[0].when",
    ),
    steps(
        "E017",
        "- {name: a, type: loop, for_each: item, steps: [{name: c, type: checkpoint}]}",
        (4, 35),
        "steps[0].for_each",
    ),
    steps(
        "E017",
        "- {name: a, type: loop, until: item, steps: [{name: c, type: checkpoint, when: index}]}",
        (4, 32),
        "steps[0].until",
        says="an 'until' loop has 'index' only",
    ),
    steps(
        "E017",
        "- {name: a, type: loop, steps: [{name: c, type: checkpoint, when: index}]}",
        (4, 67),
        "steps[0].steps[0].when",
    ),
    steps("E017", "- {name: a, type: checkpoint}", (4, 10), "outputs.x", head="outputs:\n  x: ${{ item }}\n"),
    # -- other workflows
    steps(
        "E008",
        "- {name: a, type: subworkflow, workflow: b}",
        (4, 42),
        "steps[0].workflow",
        says="b → c → b",
        children={"b": child("b", "c"), "c": child("c", "b")},
    ),
    steps(
        "E008",
        "- {name: a, type: subworkflow, workflow: c0}",
        (4, 42),
        "steps[0].workflow",
        says="8 deep at most: flow → c0 → c1",
        children={f"c{i}": child(f"c{i}", *([f"c{i + 1}"] if i < 8 else [])) for i in range(9)},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: x, cuont: 2}}",
        (4, 75),
        "steps[0].inputs.cuont",
        ("count",),
        children={"child": CHILD},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child}",
        (4, 42),
        "steps[0].workflow",
        says="needs 'order'",
        children={"child": CHILD},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: x, count: many}}",
        (4, 75),
        "steps[0].inputs.count",
        children={"child": CHILD},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: x, count: 'n ${{ 1 }}'}}",
        (4, 75),
        "steps[0].inputs.count",
        children={"child": CHILD},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: x, color: green}}",
        (4, 75),
        "steps[0].inputs.color",
        children={"child": CHILD},
    ),
    steps(
        "E024",
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: x, token: secret}}",
        (4, 75),
        "steps[0].inputs.token",
        says="environment",
        children={"child": CHILD},
    ),
    # -- shape
    steps(
        "E009",
        "- {name: a, type: checkpoint}\n- {name: a, type: checkpoint}",
        (5, 10),
        "steps[1].name",
        says="line 4",
    ),
    steps("E009", "- {name: succeeded, type: checkpoint}", (4, 10), "steps[0].name"),
    steps(
        "E010",
        "- {name: a, type: python, action: log, kwarg: {}}",
        (4, 40),
        "steps[0].kwarg",
        ("kwargs", "args"),
    ),
    steps(
        "E011",
        "- {name: a, type: loop, for_each: [1], until: index, steps: [{name: c, type: checkpoint}]}",
        (4, 47),
        "steps[0].until",
    ),
    steps(
        "E011",
        "- {name: a, type: loop, until: index, parallel: true, steps: [{name: c, type: checkpoint}]}",
        (4, 49),
        "steps[0].parallel",
    ),
    steps(
        "E011",
        "- {name: a, type: loop, for_each: [1], parallel: true, max_concurrency: 1, "
        "steps: [{name: c, type: checkpoint}]}",
        (4, 73),
        "steps[0].max_concurrency",
    ),
    steps(
        "E011",
        "- {name: a, type: loop, until: false, steps: [{name: c, type: checkpoint}]}",
        (4, 32),
        "steps[0].until",
        says="never holds",
    ),
    steps(
        "E011",
        "- {name: a, type: loop, until: '${{ 1 == 2 }}', steps: [{name: c, type: checkpoint}]}",
        (4, 32),
        "steps[0].until",
        says="never holds",
    ),
    steps(
        "E012",
        "- {name: a, type: checkpoint, when: inputs.n}",
        (4, 47),
        "inputs.n.default",
        head="inputs:\n  n: {type: integer, required: true, default: 1}\n",
    ),
    steps("E023", "", (1, 10), "version", ("1.0",)),
    steps("E026", "- {name: a, type: loop, steps: []}", (4, 32), "steps[0].steps"),
    steps(
        "E026",
        """
        - name: way
          type: branch
          options:
            - {step: {name: b, type: checkpoint}}
            - {when: "1 == 2", step: {name: c, type: checkpoint}}
        """,
        (8, 7),
        "steps[0].options[1]",
        says="has no 'when'",
    ),
    steps(
        "E026",
        """
        - name: way
          type: branch
          options:
            - {when: "${{ not false }}", step: {name: b, type: checkpoint}}
            - {step: {name: c, type: checkpoint}}
        """,
        (8, 7),
        "steps[0].options[1]",
        says="always holds",
    ),
    steps(
        "E026",
        "- {name: a, type: validate, stages: [lint], retry: 0, on_failure: {name: b, type: checkpoint}}",
        (4, 67),
        "steps[0].on_failure",
        says="never runs",
    ),
    # -- arguments and literals
    steps(
        "E018",
        "- {name: a, type: python, action: ship, kwargs: {order: x, cuont: 2}}",
        (4, 67),
        "steps[0].kwargs.cuont",
        ("count",),
        says="It takes: order, count",
    ),
    steps(
        "E018", "- {name: a, type: python, action: ship}", (4, 35), "steps[0].action", says="needs 'order'"
    ),
    steps(
        "E018",
        "- {name: a, type: python, action: ship, args: [x, 1, 2]}",
        (4, 54),
        "steps[0].args[2]",
        says="takes 2 in args at most",
    ),
    steps(
        "E018",
        "- {name: a, type: python, action: ship, args: [x], kwargs: {order: y}}",
        (4, 68),
        "steps[0].kwargs.order",
        says="twice",
    ),
    steps(
        "E018",
        "- {name: a, type: python, action: first_only, args: [x], kwargs: {first: y}}",
        (4, 74),
        "steps[0].kwargs.first",
    ),
    steps(
        "E018",
        "- {name: a, type: python, action: ship, kwargs: {order: x, ctx: y}}",
        (4, 65),
        "steps[0].kwargs.ctx",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: 12}}",
        (4, 57),
        "steps[0].kwargs.order",
        says="'order' must be text, but this is a whole number",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, args: [x, '3']}",
        (4, 51),
        "steps[0].args[1]",
        says="a whole number, but this is text",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, count: 'n-${{ 1 }}'}}",
        (4, 67),
        "steps[0].kwargs.count",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, count: true}}",
        (4, 67),
        "steps[0].kwargs.count",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, speed: medium}}",
        (4, 67),
        "steps[0].kwargs.speed",
        says="'slow' or 'fast'",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, weight: heavy}}",
        (4, 68),
        "steps[0].kwargs.weight",
        says="a number or null",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, labels: [a, 1]}}",
        (4, 68),
        "steps[0].kwargs.labels",
        says="each item is text",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, extra: {a: b}}}",
        (4, 67),
        "steps[0].kwargs.extra",
        says="each value is a whole number",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: x, gift: 'yes'}}",
        (4, 66),
        "steps[0].kwargs.gift",
        says="true or false",
    ),
    steps(
        "E019",
        "- {name: a, type: python, action: ship, kwargs: {order: null}}",
        (4, 57),
        "steps[0].kwargs.order",
    ),
    steps(
        "E019",
        "- {name: a, type: checkpoint, when: inputs.n}",
        (4, 31),
        "inputs.n.default",
        head="inputs:\n  n: {type: integer, default: many}\n",
    ),
    steps(
        "E019",
        "- {name: a, type: checkpoint, when: inputs.n}",
        (4, 30),
        "inputs.n.default",
        head="inputs:\n  n: {type: string, default: c, enum: [a, b]}\n",
    ),
    steps(
        "E019",
        "- {name: a, type: checkpoint, when: inputs.n}",
        (4, 30),
        "inputs.n.enum[1]",
        head="inputs:\n  n: {type: float, enum: [1, b]}\n",
    ),
    steps(
        "E019",
        "- {name: a, type: loop, for_each: len('x'), steps: [{name: c, type: checkpoint}]}",
        (4, 35),
        "steps[0].for_each",
        says="always gives a whole number",
    ),
    steps("E019", "- {name: a, type: validate, stages: \"'lint'\"}", (4, 37), "steps[0].stages"),
    steps("E019", "- {name: a, type: validate, stages: [lint], retry: \"'x'\"}", (4, 52), "steps[0].retry"),
    # -- how steps are performed
    steps(
        "E020",
        "- {name: a, type: python, action: log, config: {mode: agent, temperature: 7}}",
        (4, 75),
        "steps[0].config.temperature",
    ),
    steps(
        "E020",
        "- {name: a, type: python, action: log, config: {mod: agent}}",
        (4, 49),
        "steps[0].config.mod",
        ("mode",),
    ),
    steps(
        "E020",
        "- {name: a, type: python, action: log, config: {prompt_suffix: x}}",
        (4, 64),
        "steps[0].config.prompt_suffix",
        says="no layer says mode: agent",
    ),
    steps(
        "E020",
        "- {name: a, type: python, action: log, config: {mode: agent, prompt_file: none.md}}",
        (4, 75),
        "steps[0].config.prompt_file",
        says="cannot be read",
    ),
    steps(
        "E020",
        "- {name: a, type: python, action: ship, args: [x], config: {mode: agent, "
        "allowed_tools: [post.rate]}}",
        (4, 89),
        "steps[0].config.allowed_tools",
        ("post.rates",),
        says="declares: post.rates, post.send",
    ),
    steps(
        "E020",
        "- {name: a, type: checkpoint, config: {allowed_tools: []}}",
        (4, 55),
        "steps[0].config.allowed_tools",
    ),
    steps(
        "E021",
        "- {name: a, type: agent, agent: reviewer, config: {mode: deterministic}}",
        (4, 58),
        "steps[0].config.mode",
        says="no handler",
    ),
    steps(
        "E021",
        "- {name: a, type: generate, generator: essay, config: {mode: deterministic}}",
        (4, 62),
        "steps[0].config.mode",
    ),
    steps(
        "E021",
        "- {name: a, type: agent, agent: reviewer}",
        (4, 10),
        "steps[0].name",
        says="steps.a in the project's settings",
        steps={"a": {"mode": "deterministic"}},
    ),
    steps("E022", "- {name: a, type: agent, agent: reviewer}", (4, 19), "steps[0].type", forced=True),
    steps("E022", "- {name: a, type: generate, generator: essay}", (4, 19), "steps[0].type", forced=True),
    steps(
        "E022",
        "- {name: a, type: subworkflow, workflow: c}",
        (4, 42),
        "steps[0].workflow",
        forced=True,
        says="step 'ask' of workflow 'c'",
        children={"c": 'version: "1.0"\nname: c\nsteps: [{name: ask, type: agent, agent: reviewer}]\n'},
    ),
    steps(
        "E025",
        "- {name: first, type: checkpoint}",
        (2, 7),
        "settings.steps['flow/frist']",
        ("flow/first",),
        steps={"flow/frist": {"timeout": 1}, "first": {"timeout": 1}, "other/x": {"timeout": 1}, "x": {}},
    ),
    steps(
        "E025",
        "- {name: first, type: checkpoint}",
        (2, 7),
        "settings.steps['workflow/flow/second']",
        steps={"workflow/flow/second": StepConfig(timeout=1)},
    ),
    steps(
        "E025",
        "- {name: first, type: checkpoint}",
        (2, 7),
        "settings.agents.reviwer",
        ("reviewer",),
        agents={"reviwer": {}, "reviewer": {}, "dispatch": {}},
    ),
    # -- warnings
    steps("W001", "- {name: a, type: checkpoint}", (4, 3), "inputs.n", head="inputs:\n  n: {type: string}\n"),
    steps(
        "W002",
        "- {name: a, type: python, action: log, config: {mode: agent, autonomy: operator}}",
        (4, 72),
        "steps[0].config.autonomy",
    ),
    steps(
        "W002",
        "- {name: a, type: python, action: log}",
        (4, 10),
        "steps[0].name",
        steps={"flow/a": {"mode": "agent", "autonomy": "operator"}},
    ),
    *(
        steps(
            "W003",
            f"- {{name: a, type: {kind}, config: {{mode: agent}}, {rest}}}",
            (4, 36 + len(kind)),
            "steps[0].config.mode",
            says=f"to a {kind} step",
        )
        for kind, rest in {
            "checkpoint": "when: true",
            "validate": "stages: [lint]",
            "branch": "options: [{step: {name: b, type: checkpoint}}]",
            "loop": "steps: [{name: b, type: checkpoint}]",
        }.items()
    ),
    steps(
        "W003",
        "- {name: a, type: subworkflow, workflow: b}",
        (4, 10),
        "steps[0].name",
        children={"b": child("b")},
        steps={"a": {"mode": "agent"}},
    ),
    steps(
        "W004",
        "- {name: a, type: agent, agent: reviewer, config: {mode: agent}}",
        (4, 58),
        "steps[0].config.mode",
    ),
    steps(
        "W004",
        "- {name: a, type: generate, generator: summary, config: {mode: deterministic}}",
        (4, 64),
        "steps[0].config.mode",
    ),
    steps(
        "W005",
        "- {name: a, type: python, action: log, config: {mode: agent}}",
        (4, 55),
        "steps[0].config.mode",
        says="the handler will run",
        no_model=lambda: NO_MODEL,
    ),
    steps(
        "W005",
        "- {name: a, type: agent, agent: reviewer}",
        (4, 19),
        "steps[0].type",
        no_model=lambda: NO_MODEL,
    ),
    steps(
        "W006",
        "- {name: a, type: python, action: ship, args: [x], config: {mode: agent, autonomy: approver}}",
        (4, 84),
        "steps[0].config.autonomy",
        says="consultant at most",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.path}")
def test_a_broken_file_yields_exactly_its_code(case: Case) -> None:
    """D-71: with file, line, column, path and what may have been meant."""
    text = case.text
    if case.code == "E023":
        text = 'version: "1.1"\nname: flow\nsteps:\n- {name: a, type: checkpoint}\n'
    found = problems_of(text, children=case.children, **case.said)
    assert [problem.code for problem in found] == [case.code], found
    (problem,) = found
    assert (problem.place.file, problem.place.line, problem.place.column) == ("flow.yaml", *case.at), str(
        problem
    )
    assert problem.path == case.path
    assert problem.suggestions == case.suggests
    assert case.says in problem.message
    assert problem.severity == ("warning" if case.code.startswith("W") else "error")
    assert str(problem).startswith(f"flow.yaml:{case.at[0]}:{case.at[1]}: {case.code} ")


def test_every_code_has_a_broken_file() -> None:
    """D-71."""
    codes = {f"E{number:03}" for number in range(1, 27)} | {f"W{number:03}" for number in range(1, 7)}
    assert {case.code for case in CASES} == codes


# -- what is fine -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "- {name: a, type: python, action: ship, args: ['${{ 1 }}']}",
        "- {name: a, type: python, action: ship, args: [x], kwargs: {count: '${{ len([1]) }}', speed: fast}}",
        "- {name: a, type: python, action: ship, kwargs: {order: x, weight: 2, labels: [a], extra: {a: 1}}}",
        "- {name: a, type: python, action: ship, kwargs: {order: x, weight: null, labels: , anything: [1]}}",
        "- {name: a, type: python, action: ship, kwargs: {order: x, labels: ['a ${{ 1 }}', '${{ 1 }}']}}",
        "- {name: a, type: python, action: ship, kwargs: {order: 'x ${{ 1 }}', labels: '${{ [1] }}'}}",
        "- {name: a, type: python, action: gather, args: [1, 2, 3], kwargs: {whatever: 1}}",
        "- {name: a, type: python, action: first_only, args: [x], kwargs: {second: y}}",
        "- {name: a, type: python, action: log, when: false}",
        "- {name: a, type: agent, agent: reviewer, context: changed_files}",
        "- {name: a, type: agent, agent: reviewer, config: {temperature: 0.5, prompt_suffix: x}}",
        "- {name: a, type: generate, generator: summary, context: {x: '${{ 1 }}'}}",
        "- {name: a, type: generate, generator: essay}",
        "- {name: a, type: validate, stages: [format, lint, typecheck, test, docs]}",
        "- {name: a, type: validate, stages: \"['lint']\", retry: '2'}",
        "- {name: a, type: checkpoint, requires: [git, 'env:HOME']}",
        "- {name: a, type: checkpoint, config: {timeout: 5}}",
        "- {name: a, type: checkpoint, config: {mode: deterministic}}",
        "- {name: a, type: python, action: log, config: {mode: agent}}",
        "- {name: a, type: python, action: log, config: {shadow: true, prompt_suffix: x}}",
        "- {name: a, type: python, action: ship, args: [x], config: {mode: agent, allowed_tools: []}}",
        "- {name: a, type: loop, until: false, on_exhausted: continue, steps: [{name: b, type: checkpoint}]}",
        "- {name: a, type: loop, until: steps.b.output, steps: [{name: b, type: checkpoint, when: index}]}",
        "- {name: a, type: loop, for_each: [1], parallel: true, max_concurrency: 0, steps: [{name: b, type: "
        "checkpoint, checkpoint_id: 'x${{ index }}${{ item }}'}]}",
        "- {name: a, type: checkpoint, checkpoint_id: 'costs $${{ 5'}",
    ],
)  # fmt: skip
def test_a_right_file_has_no_problem(text: str) -> None:
    """D-61: the accepting side."""
    assert problems_of(text_of(text), tools=["post.send", "post.rates"]) == []


def test_a_step_sees_what_has_finished_before_it() -> None:
    text = text_of(
        """
        - {name: a, type: checkpoint, when: inputs.n}
        - name: way
          type: branch
          options:
            - {when: steps.a.output, step: {name: b, type: checkpoint, when: steps.a.status}}
        - name: each
          type: loop
          for_each: steps.way.output
          steps:
            - {name: c, type: checkpoint, when: item and steps.a.output}
            - name: beside
              type: loop
              steps:
                - {name: d, type: checkpoint, when: item and steps.c.output}
                - {name: e, type: checkpoint, when: "index and steps['c'].output and steps.way.output"}
            - name: again
              type: loop
              until: steps.f.output and index and steps.beside.output and item
              steps:
                - {name: f, type: checkpoint, when: steps.c.output and item}
        - {name: check, type: validate, stages: steps.each.output, on_failure: {name: g, type: checkpoint,
           when: steps.each.output}}
        """,
        "inputs: {n: {type: string}}\n"
        "outputs: {all: ['${{ steps.check.output }}', '${{ steps.a.output }}']}\n",
    )
    assert problems_of(text) == []


def test_a_step_deep_inside_is_told_with_the_owner_that_can_be_used() -> None:
    text = text_of("""\
    - name: outer
      type: loop
      for_each: [1]
      steps:
        - {name: inner, type: loop, for_each: [2], steps: [{name: deep, type: checkpoint}]}
        - {name: beside, type: checkpoint, when: steps.deep.output}
    - {name: after, type: checkpoint, when: steps.deep.output}
    """)
    found = problems_of(text)
    assert [(one.code, one.suggestions) for one in found] == [("E016", ("inner",)), ("E016", ())]


def test_a_secret_may_be_handed_on_to_a_child() -> None:
    text = text_of(
        "- {name: a, type: subworkflow, workflow: child, inputs: {order: '${{ inputs.order }}', "
        "token: '${{ inputs.token }}'}}\n",
        "inputs: {order: {type: string}, token: {type: string, secret: true}}\n",
    )
    assert problems_of(text, children={"child": CHILD}) == []


def test_eight_subworkflows_inside_each_other_are_fine_and_a_diamond_is_no_circle() -> None:
    chain = {f"c{i}": child(f"c{i}", *([f"c{i + 1}"] if i < 7 else [])) for i in range(8)}
    assert problems_of(text_of("- {name: a, type: subworkflow, workflow: c0}\n"), children=chain) == []
    diamond = {"b": child("b", "d"), "c": child("c", "d"), "d": child("d")}
    text = text_of(
        "- {name: x, type: subworkflow, workflow: b}\n- {name: y, type: subworkflow, workflow: c}\n"
    )
    assert problems_of(text, children=diamond) == []


def test_a_workflow_that_runs_itself_is_a_circle() -> None:
    text = text_of("- {name: a, type: subworkflow, workflow: flow}\n")
    spec = spec_of(text)
    (problem,) = check_read(Read(spec, (), spec), registry(), find=lambda name: spec)
    assert (problem.code, "flow → flow" in problem.message) == ("E008", True)


def test_many_ways_through_many_subworkflows_cost_little() -> None:
    """Every workflow runs every one of the next layer: millions of ways, looked at once each."""
    layers = [[f"w{depth}-{i}" for i in range(20)] for depth in range(8)]
    children = {
        name: child(name, *(layers[depth + 1] if depth < 7 else []))
        for depth, names in enumerate(layers)
        for name in names
    }
    text = text_of("".join(f"- {{name: s{i}, type: subworkflow, workflow: w0-{i}}}\n" for i in range(20)))
    assert problems_of(text, children=children) == []


# -- how others are asked -----------------------------------------------------------------------------------


def test_whoever_finds_workflows_may_say_why_there_is_none() -> None:
    spec = spec_of(text_of("- {name: a, type: subworkflow, workflow: comit}\n"))

    def not_there(name: str) -> None:
        raise WorkflowNotFound(name, "There is none.", ("commit", "comet"))

    (problem,) = check_read(Read(spec, (), spec), registry(), find=not_there)
    assert (problem.code, problem.suggestions) == ("E005", ("commit", "comet"))

    def broken(name: str) -> None:
        raise DocumentError("Workflow file comit.yaml", read("").problems)

    (problem,) = check_read(Read(spec, (), spec), registry(), find=broken)
    assert problem.code == "E005"
    assert "comit.yaml has 1 problem" in problem.message

    def unsure(name: str) -> None:
        raise ConfigurationError("Two project workflows are named 'comit': a.yaml and b.yaml. Rename one.")

    (problem,) = check_read(Read(spec, (), spec), registry(), find=unsure)
    assert "a.yaml and b.yaml" in problem.message


def test_a_path_inside_a_child_is_looked_for_beside_the_child() -> None:
    asked: list[str] = []
    first = spec_of(text_of("- {name: a, type: subworkflow, workflow: sub/one.yaml}\n"))
    one = spec_of(child("one", "./two.yaml").replace("to-./two.yaml", "b"), "/there/sub/one.yaml")

    def find(name: str) -> Any:
        asked.append(name)
        return one if name.endswith("one.yaml") else None

    check_read(Read(first, (), first), registry(), find=find)
    assert asked == ["sub/one.yaml", "/there/sub/two.yaml"]


def test_an_action_whose_own_rollback_is_not_there_is_told() -> None:
    registered = registry(Action("half", handler=lambda: None, intent=INTENT, rollback="ship_bak"))
    (problem,) = problems_of(text_of("- {name: a, type: python, action: half}\n"), registered=registered)
    assert (problem.code, problem.path, problem.suggestions[0]) == ("E013", "steps[0].action", "ship_back")


def test_tools_of_agents_and_generators_are_looked_for_as_well() -> None:
    registered = registry(
        Agent("clerk", tools=("post.x",)), Generator("poem", tools=("post.y",), handler=lambda: "")
    )
    text = text_of("- {name: a, type: agent, agent: clerk}\n- {name: b, type: generate, generator: poem}\n")
    found = problems_of(text, registered=registered, tools=[])
    assert [(one.code, one.path) for one in found] == [
        ("E002", "steps[0].agent"),
        ("E004", "steps[1].generator"),
    ]


def test_settings_of_a_step_beat_each_other_as_when_it_runs() -> None:
    """A qualified key beats a bare one, and the file both. 1.3."""
    text = text_of("- {name: a, type: python, action: log, config: {mode: deterministic}}\n")
    assert problems_of(text, no_model=lambda: NO_MODEL, steps={"a": {"mode": "agent"}}) == []
    text = text_of("- {name: a, type: python, action: log}\n")
    layers = {"a": {"mode": "agent"}, "workflow/flow/a": StepConfig.read({"mode": "deterministic"})}
    assert problems_of(text, no_model=lambda: NO_MODEL, steps=layers) == []
    assert [
        one.code for one in problems_of(text, no_model=lambda: NO_MODEL, steps={"a": {"mode": "agent"}})
    ] == ["W005"]
    assert problems_of(text, no_model=lambda: NO_MODEL, steps={"a": {"mode": "agent"}}, forced=True) == []


# -- all at once --------------------------------------------------------------------------------------------


def test_everything_is_told_at_once_in_order_of_place() -> None:
    """Shape, names, expressions and settings of one file together."""
    found = problems_of(
        """\
version: "1.0"
name: flow
inputs: {unused: {type: string}, n: {type: integer, default: x}}
steps:
  - {name: a, type: python, action: shp, when: steps.b.output and inputs.m}
  - {name: b, type: pyton}
  - {name: c, type: agent, agent: reviewr, context: nobody, bogus: 1}
  - {name: d, type: python, action: ship, kwargs: {cuont: 1}, requires: [gti]}
outputs: {x: "${{ steps.nothing.output }}", y: "${{ 1 + }}"}
""",
        no_model=lambda: NO_MODEL,
    )
    assert [(one.code, one.path) for one in found] == [
        ("E019", "inputs.n.default"), ("E001", "steps[0].action"), ("E016", "steps[0].when"),
        ("E007", "steps[0].when"), ("E010", "steps[1].type"), ("W005", "steps[2].type"),
        ("E002", "steps[2].agent"), ("E003", "steps[2].context"), ("E010", "steps[2].bogus"),
        ("E018", "steps[3].action"), ("E018", "steps[3].kwargs.cuont"), ("E014", "steps[3].requires[0]"),
        ("E007", "outputs.x"), ("E006", "outputs.y"),
    ]  # fmt: skip
    assert [one.place for one in found] == sorted(one.place for one in found)


def test_a_mistake_of_shape_makes_no_second_one() -> None:
    """What could not be read is not held against the step, nor against those that refer to it."""
    text = text_of("""\
    - {name: a, type: nothing}
    - {name: b, type: python, action: ship, kwargs: [order]}
    - {name: c, type: checkpoint, when: steps.a.output and steps.b.output}
    """)
    assert [(one.code, one.path) for one in problems_of(text)] == [
        ("E010", "steps[0].type"), ("E010", "steps[1].kwargs"),
    ]  # fmt: skip


def test_a_problem_is_a_record_others_can_read() -> None:
    (problem,) = problems_of(text_of("- {name: a, type: python, action: shp}\n"))
    assert problem.to_plain() == {
        "code": "E001", "severity": "error", "message": "there is no action 'shp'.", "file": "flow.yaml",
        "line": 4, "column": 35, "path": "steps[0].action", "suggestion": ["ship"],
    }  # fmt: skip


def test_a_file_that_cannot_be_read_has_its_problems_all_the_same() -> None:
    (problem,) = check_read(read("a: ["), registry(), find=lambda name: None)
    assert problem.code == "E010"


# -- many ---------------------------------------------------------------------------------------------------


def test_a_file_of_three_thousand_steps_is_checked_whole() -> None:
    lines = ["- {name: s0, type: checkpoint}\n"]
    lines += [f"- {{name: s{i}, type: checkpoint, when: steps.s{i - 1}.output}}\n" for i in range(1, 2400)]
    assert problems_of(text_of("".join(lines))) == []
    assert problems_of(text_of("".join(f"- {{name: s{i}, type: checkpoint}}\n" for i in range(3000)))) == []


def test_a_file_of_three_thousand_mistakes_is_told_whole() -> None:
    lines = [f"- {{name: step{i}, type: checkpoint, when: steps.stop{i}.output}}\n" for i in range(2400)]
    found = problems_of(text_of("".join(lines)))
    assert len(found) == 2400
    assert found[0].suggestions
    assert not found[-1].suggestions


def test_references_out_of_many_nested_bodies_are_judged() -> None:
    body = "{name: inner, type: checkpoint, when: steps.first.output and steps.last.output}"
    for level in range(25):
        body = f"{{name: l{level}, type: loop, for_each: [1], steps: [{body}]}}"
    text = text_of(f"- {{name: first, type: checkpoint}}\n- {body}\n- {{name: last, type: checkpoint}}\n")
    assert [one.code for one in problems_of(text)] == ["E016"]
