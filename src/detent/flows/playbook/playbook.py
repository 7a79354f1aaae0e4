"""A playbook in memory: its manifest, its steps with overlays laid over them, its templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from detent.authoring.problem import Place, Problem
from detent.flows.playbook.folder import (
    MANIFEST,
    Manifest,
    OutputLine,
    PlaybookFolder,
    output_line,
    read_manifest,
)
from detent.flows.playbook.instruction import Edge, InstructionFile, folded
from detent.flows.playbook.protocol import BODY
from detent.flows.playbook.sentences import Bank, bank_files, read_bank
from detent.flows.playbook.step_file_cache import InstructionLoader, read_cached
from detent.flows.playbook.table import aliases_of, canonical_edges
from detent.flows.playbook.templates import TemplateSet
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import digest, to_plain

LANGUAGE = "en"


@dataclass(frozen=True)
class Playbook:
    """Everything a folder says."""

    loader: InstructionLoader
    manifest: Manifest
    steps: Mapping[str, InstructionFile]
    """By id, in order of their names; those that could not be read at all are not there."""
    texts: Mapping[str, str]
    """Step files that could not be read, as they are, by id."""
    start: str
    aliases: Mapping[str, str]
    """Everything steps and ends go by, folded."""
    edges: Mapping[str, tuple[Edge, ...]]
    """With canonical targets."""
    templates: TemplateSet
    lines: tuple[OutputLine, ...]
    """Output lines of agents' replies beyond the usual ones."""
    banks: Mapping[str, Mapping[str, Bank]] = field(default_factory=dict)
    """Approved sentences, by step and language."""

    @property
    def needs(self) -> Mapping[str, tuple[str, ...]]:
        """By step, the keys of the data it is given."""
        return {step.id: step.needs for step in self.steps.values()}

    def shown(self, step: InstructionFile) -> str:
        """A step's file as people are told about it."""
        return self.loader.shown(self.loader.files().get(step.id, step.path))

    @property
    def manifest_shown(self) -> str:
        """The manifest as people are told about it."""
        return self.loader.folder.shown(self.loader.folder.root / MANIFEST)

    def output_lines(self, step: InstructionFile) -> tuple[OutputLine, ...]:
        """The output lines of an agent's reply to this step, beyond the usual ones."""
        known = {line.key: line for line in self.lines}
        lines = [line for line in self.lines if line.sets in step.outputs or line.key in step.text_fields]
        lines += [
            OutputLine(key, "", "line", "handler")
            for key in step.text_fields
            if key not in known and key != BODY
        ]
        return tuple(lines)

    def fingerprint_parts(self) -> dict[str, str]:
        """Per step file, a mark that changes with what it means for a run: edges, functions, text."""
        return {f"steps/{step.id}.md": _mark(step, self.edges[step.id]) for step in self.steps.values()}


def _mark(step: InstructionFile, edges: Sequence[Edge]) -> str:
    return digest(
        to_plain(
            {
                "edges": [[edge.to, edge.when, edge.reason] for edge in edges],
                "functions": [
                    [function.name, function.parameters, function.into]
                    for function in step.available_functions
                ],
                "needs": step.needs,
                "handler": step.handler,
                "call": [
                    [query.function, query.args, query.into, query.when, query.otherwise]
                    for query in step.call
                ],
                "effects": [
                    [effect.function, effect.args, effect.templates, effect.into, effect.when]
                    for effect in step.effects
                ],
                "variant": [[variant.name, variant.when] for variant in step.variant],
                "body": digest(step.body),
                **({"form": _form_mark(step)} if step.form or step.conclude else {}),
            }
        ),
        16,
    )


def _form_mark(step: InstructionFile) -> list[Any]:
    fields = [
        [field.name, field.description, field.schema, field.meanings, field.fills]
        + (
            [field.candidates.function, field.candidates.pattern, field.candidates.within]
            if field.candidates
            else []
        )
        for field in step.form
    ]
    return [
        fields,
        [[example.given, example.answer, example.note] for example in step.examples],
        step.conclude,
    ]


def read_playbook(
    folder: str | Path | PlaybookFolder,
    *,
    overlays: Sequence[str | Path | PlaybookFolder] = (),
    language: str | None = None,
    protocol: Mapping[str, Any] | None = None,
) -> tuple[Playbook, list[Problem]]:
    """Read a folder; returns the playbook and the problems of its single files."""
    loader = InstructionLoader(folder, overlays)
    manifest, problems = read_manifest(loader.folder)
    for source in loader.folders:
        if not source.steps.is_dir():
            problems.append(Problem("P01", "there is no such folder.", Place(source.shown(source.steps), 1)))
    steps: dict[str, InstructionFile] = {}
    texts: dict[str, str] = {}
    for stem, path in loader.files().items():
        read = read_cached(path)
        if read is None:
            continue
        problems += read.shown(loader.shown(path)).problems
        if read.instruction is not None:
            steps[stem] = replace(read.instruction, path=path)
        else:
            texts[stem] = read.text
    if not steps and not texts and not problems:
        where = loader.folder.shown(loader.folder.steps)
        problems.append(
            Problem("P01", "there is no step file (`<number>-<what-it-does>.md`) in it.", Place(where, 1))
        )
    ordered = list(steps.values())
    aliases = aliases_of(ordered)
    for stem in texts:
        aliases.setdefault(folded(stem), stem)
    start = next(iter([*sorted([*steps, *texts])]), "")
    if manifest.start is not None:
        named = aliases.get(folded(manifest.start))
        if named is None or named not in {*steps, *texts}:
            message = f"start names '{manifest.start}', and there is no such step file."
            message += nearest(manifest.start, [*steps, *texts])
            problems.append(Problem("P01", message, manifest.place("start"), "start"))
            start = manifest.start
        else:
            start = named
    banks: dict[str, dict[str, Bank]] = {}
    for file in bank_files(source.sentences for source in loader.folders):
        if file.step in steps and loader.rank(steps[file.step].path) > loader.rank(file.path):
            continue  # approved for a step that an overlay has replaced
        bank, wrong = read_bank(file, loader.shown(file.path))
        problems += wrong
        if bank is not None:
            banks.setdefault(file.step, {})[file.language] = bank
    playbook = Playbook(
        loader,
        manifest,
        steps,
        texts,
        start,
        aliases,
        {step.id: canonical_edges(step, aliases) for step in ordered},
        TemplateSet(
            (source.templates for source in loader.folders), language or manifest.language or LANGUAGE
        ),
        _lines(manifest, protocol),
        banks,
    )
    return playbook, problems


def _lines(manifest: Manifest, protocol: Mapping[str, Any] | None) -> tuple[OutputLine, ...]:
    """The manifest's output lines, overridden by an application's."""
    lines = {line.key: line for line in manifest.protocol}
    for key, declared in (protocol or {}).items():
        line = output_line(key, declared)
        if isinstance(line, str):
            raise ConfigurationError(f"Output line '{key}': {line}")
        lines[line.key] = line
    return tuple(lines.values())
