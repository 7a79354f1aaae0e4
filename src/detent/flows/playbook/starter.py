"""The files of a new playbook."""

from __future__ import annotations

NEW = {
    "steps/01-sort-request.md": """\
---
name: 01-sort-request
description: Decide whether a request is answered now or put on the list.
version: 1.0.0
next:
  - {to: 02-answer-now, when: {urgent: true}, reason: urgent}
  - {to: 03-put-on-list, reason: can wait}
needs: [urgent]
call: []
---
You sort requests. Look at `urgent`, and at nothing else.

- It is true: the next step is 02-answer-now.
- Otherwise: the next step is 03-put-on-list.
""",
    "steps/02-answer-now.md": """\
---
name: 02-answer-now
description: Write a note that somebody is on the way.
version: 1.0.0
next: [DONE]
available_functions: [write_file]
needs: [id, name, wish]
outputs: [note]
effects:
  write_file:
    path: "out/{{id}}-now.txt"
    body: |
      Dear {{name}},

      we are on our way: {{wish}}.
    into: {note: path}
text_fields: {BODY: write_file.body}
facts: {name: name}
---
You write to somebody whose request is urgent. Two sentences: that we are on our way, and what for.
""",
    "steps/03-put-on-list.md": """\
---
name: 03-put-on-list
description: Write a note that the request is on the list.
version: 1.0.0
next: [DONE]
available_functions: [write_file]
needs: [id, name, wish]
outputs: [note]
effects:
  write_file:
    path: "out/{{id}}-list.txt"
    body: |
      Dear {{name}},

      your request is on our list: {{wish}}.
    into: {note: path}
text_fields: {BODY: write_file.body}
facts: {name: name}
---
You write to somebody whose request can wait. Two sentences: that it is on our list, and what it says.
""",
    "input.json": """\
{"id": "R-1", "name": "Ada", "wish": "the door does not close", "urgent": true}
""",
    "evals/urgent_001.yaml": """\
# path: 01 -> 02
scenario_id: urgent_001
description: An urgent request is answered now
category: sorting
input:
  data: {id: R-1, name: Ada, wish: the door does not close, urgent: true}
expected_output:
  expected_steps:
    - step_name: 01-sort-request
      next_step: 02-answer-now
    - {step_name: 02-answer-now, function_call: write_file, function_args: {path: out/R-1-now.txt}}
  status: succeeded
""",
}
"""The text of each file of a new playbook."""
