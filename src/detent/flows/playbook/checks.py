"""Checks a playbook and reports every problem at once: file, line, code, and the nearest valid name.

`reading` reports the problems of a single file; this module checks the files against each other, the
registered functions and the templates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from detent.authoring.document import above, below, path_of
from detent.authoring.problem import Place, Problem, in_order
from detent.authoring.templates import placeholders
from detent.dispatch.autonomy import StepMode
from detent.engine.tools import Tool
from detent.flows.playbook.folder import Manifest, PlaybookFolder
from detent.flows.playbook.instruction import (
    DONE,
    ENDS,
    EffectDeclaration,
    InstructionFile,
    folded,
)
from detent.flows.playbook.playbook import Playbook, read_playbook
from detent.flows.playbook.reading import BODY_ARGUMENT, DECLARATIVE, KEYS
from detent.flows.playbook.registry import FunctionRegistry, Given, Load, Names, imported
from detent.flows.playbook.sentence_checks import sentence_problems
from detent.flows.playbook.table import reached
from detent.flows.playbook.templates import LANGUAGE, TemplateSet
from detent.kernel.errors import ConfigurationError, nearest


def check_playbook(
    folder: str | Path | PlaybookFolder,
    *,
    tools: Collection[str] = (),
    handlers: Given = None,
    validators: Given = None,
    overlays: Sequence[str | Path | PlaybookFolder] = (),
    agents: Iterable[str] = (),
    arguments: Mapping[str, Any] | None = None,
    language: str | None = None,
    load: Load = imported,
) -> list[Problem]:
    """Every problem of a folder, in order of place.

    `tools` are the registered functions: names, or tools by name, whose kinds are then checked as well.
    Functions of the manifest's modules are added to them; `load` imports those modules.
    """
    playbook, problems = read_playbook(folder, overlays=overlays, language=language)
    registered: dict[str, Tool | None] = dict(tools) if isinstance(tools, Mapping) else dict.fromkeys(tools)
    names = Names(
        playbook, [tool for tool in registered.values() if isinstance(tool, Tool)], handlers, validators, load
    )
    known: dict[str, Tool | None] = {**registered, **names.tools}
    problems += names.problems
    problems += problems_of(
        playbook, known, names.handlers, names.validators, agents=agents,
        usual={**playbook.manifest.arguments, **(arguments or {})}, reported=problems,
    )  # fmt: skip
    return in_order(problems)


def problems_of(
    playbook: Playbook,
    tools: Mapping[str, Tool | None],
    handlers: FunctionRegistry,
    validators: FunctionRegistry,
    *,
    agents: Iterable[str] = (),
    usual: Mapping[str, Any] | None = None,
    values: Iterable[str] = (),
    reported: Iterable[Problem] = (),
) -> list[Problem]:
    """Problems between the files of a playbook, and between them and the registered functions.

    Problems that merely follow from those in `reported` are left out, so that each mistake is reported once.
    """
    check = _Check(playbook, tools, handlers, validators, set(agents), usual or {}, tuple(values))
    check.note_reported(reported)
    return check.problems()


def redirect_of(manifest: Manifest) -> EffectDeclaration | None:
    """The effect proposed when a run is degraded, as the manifest declares it."""
    if manifest.redirect is None:
        return None
    ((function, options),) = manifest.redirect.items()
    template = options.get("template")
    templates = template if isinstance(template, dict) else {BODY_ARGUMENT: template} if template else {}
    args = {key: value for key, value in options.items() if key != "template"}
    return EffectDeclaration(function, args, templates, path="redirect")


class _Check:
    """One check of a playbook."""

    def __init__(
        self,
        playbook: Playbook,
        tools: Mapping[str, Tool | None],
        handlers: FunctionRegistry,
        validators: FunctionRegistry,
        agents: set[str],
        usual: Mapping[str, Any],
        values: tuple[str, ...] = (),
    ) -> None:
        self.playbook = playbook
        self.tools = tools
        self.handlers = handlers
        self.validators = validators
        self.agents = agents
        self.usual = usual
        self.values = values
        """Names that texts may insert besides keys of the data."""
        self.findings: list[Problem] = []
        self.files = playbook.loader.files()
        self.used: set[tuple[str, str | None]] = set()
        """Templates some step uses: base and variant."""
        self.unclear: set[str] = set()
        """Codes of checks that reported problems make impossible: P14, P16, W02."""

    def note_reported(self, reported: Iterable[Problem]) -> None:
        """Note which checks the reported problems make impossible."""
        for problem in reported:
            if problem.severity == "warning":
                continue
            if problem.place.file != self.playbook.manifest_shown:
                self.unclear.add("W02")
            elif problem.code in ("P03", "P05"):
                self.unclear |= {"P14", "P16"}
            elif problem.code in ("P14", "P16"):
                self.unclear.add(problem.code)

    def wrong(self, step: InstructionFile, code: str, path: str, message: str) -> None:
        shown = self.playbook.loader.shown(self.files.get(step.id, step.path))
        self.findings.append(Problem(code, message, step.place(path)._replace(file=shown), path))

    def in_manifest(self, code: str, key: str, message: str) -> None:
        self.findings.append(Problem(code, message, self.playbook.manifest.place(key), key))

    def problems(self) -> list[Problem]:
        """All of them."""
        self.names()
        for step in self.playbook.steps.values():
            self.targets(step)
            self.shadows(step)
            self.functions(step)
            self.handler(step)
            self.form(step)
            self.placeholders(step)
        self.reachability()
        self.redirect()
        self.unused_templates()
        return [*self.findings, *sentence_problems(self.playbook)]

    # -- names and paths ------------------------------------------------------------------------------------

    def names(self) -> None:
        """P11: every name and alias belongs to one step."""
        taken: dict[str, str] = {folded(end): end for end in ENDS}
        for step in self.playbook.steps.values():
            for name in step.names:
                owner = taken.setdefault(folded(name), step.id)
                if owner == step.id or (owner in ENDS and folded(name) == folded(step.id)):
                    continue  # the latter was reported when the file was read
                if folded(step.name) == folded(owner) and name not in step.aliases:
                    continue  # a copy that still has the other's name: that was reported, too
                written = name in step.aliases
                path = ("aliases", step.aliases.index(name)) if written else ("name",)
                conflict = "the name of an end" if owner in ENDS else f"a name of step '{owner}', too"
                self.wrong(step, "P11", path_of(*path), f"'{name}' is {conflict}. Give it another name.")

    def targets(self, step: InstructionFile) -> None:
        """P10: every target of `next` is a step."""
        known = [*self.files, *ENDS]
        for index, edge in enumerate(step.next):
            if folded(edge.to) in self.playbook.aliases:
                continue
            hint = nearest(edge.to, known)
            names = "" if hint and len(known) > 30 else f" Steps: {', '.join(known)}."
            message = f"next names '{edge.to}', which is no step here.{hint}{names}"
            self.wrong(step, "P10", path_of("next", index, "to"), message)

    def shadows(self, step: InstructionFile) -> None:
        """P18: an edge that can never be taken, because an edge without a condition stands before it."""
        always: list[str] = []
        for index, edge in enumerate(self.playbook.edges[step.id]):
            chosen = step.declarative or bool(step.form)  # the first edge that holds is taken
            before = always[0] if chosen and always else edge.to if edge.to in always else None
            if before is not None:
                message = (
                    f"the edge to '{edge.to}' is never taken: the one to '{before}' before it always holds."
                )
                self.wrong(step, "P18", path_of("next", index), message)
            if (
                edge.when is None and path_of("next", index, "when") not in step.places
            ):  # else it is malformed
                always.append(edge.to)

    def reachability(self) -> None:
        """P12 and P13: every step can be reached, and can reach the end.

        An unreadable file is assumed to lead to every step it mentions, a misspelt target to the nearest
        name, so that each mistake is reported once.
        """
        playbook = self.playbook
        stems = list(self.files)
        edges: dict[str, set[str]] = {}
        unclear: set[str] = set()
        for name, text in playbook.texts.items():
            # A file that mentions none may lead to any.
            edges[name] = {other for other in stems if other in text} or set(stems)
            unclear.add(name)
        for step in playbook.steps.values():
            row = edges[step.id] = set()
            for edge in playbook.edges[step.id]:
                if edge.to in stems or edge.to in ENDS:
                    row.add(edge.to)
                else:
                    close = get_close_matches(edge.to, stems, n=1, cutoff=0.5)
                    row.update(close)
                    unclear.add(step.id)
            if len(step.next) < _items(step):  # some item could not be read
                unclear.add(step.id)
        if playbook.start not in edges:
            return
        reachable = reached({playbook.start}, edges)
        back: dict[str, set[str]] = {}
        for name, row in edges.items():
            for to in row:
                back.setdefault(to, set()).add(name)
        leave = reached({DONE, *unclear, *(stem for stem, row in edges.items() if not row)}, back)
        for step in playbook.steps.values():
            if step.id not in reachable:
                message = (
                    f"the step cannot be reached from the start, '{playbook.start}': "
                    "name it in the `next` of a step that can, or delete the file."
                )
                self.wrong(step, "P12", "name", message)
            elif step.id not in leave:
                message = f"there is no way from here to {DONE}: name {DONE} in the `next` of the last step."
                self.wrong(step, "P13", "next", message)

    # -- functions and handlers -----------------------------------------------------------------------------

    def functions(self, step: InstructionFile) -> None:
        """P14: functions are registered, declared, and of the right kind."""
        for index, declared in enumerate(step.available_functions):
            if declared.name not in self.tools and "P14" not in self.unclear:
                known = ", ".join(sorted(self.tools)) or "none"
                message = f"there is no function '{declared.name}'.{nearest(declared.name, self.tools)}"
                self.wrong(
                    step, "P14", path_of("available_functions", index), f"{message} Functions: {known}."
                )
        for call in step.call:
            self.uses(step, call.function, call.path, "query", call.args)
        for effect in step.effects:
            args = {**dict.fromkeys(effect.templates, ""), **effect.args}
            self.uses(step, effect.function, effect.path, "effect", args)
        for key, target in step.text_fields.items():
            self.declares(step, target.rpartition(".")[0], path_of("text_fields", key))

    def declares(self, step: InstructionFile, function: str, path: str) -> bool:
        """Whether a step declares a function it uses; P14 if it does not."""
        if step.function(function) is not None:
            return True
        names = [declared.name for declared in step.available_functions]
        message = f"'{function}' is none of this step's available_functions.{nearest(function, names)}"
        self.wrong(step, "P14", path, message)
        return False

    def uses(
        self, step: InstructionFile, function: str, place: str, kind: str, args: Mapping[str, Any]
    ) -> None:
        """P14: a function of `call` or `effects` is declared, of the right kind, and takes the arguments."""
        key_path = next(
            (candidate for candidate in (below(place, function), place) if candidate in step.places), place
        )
        if not self.declares(step, function, key_path):
            return
        tool = self.tools.get(function)
        if tool is None:
            return
        if tool.kind != kind:
            used = "call asks queries" if kind == "query" else "effects are no queries"
            self.wrong(step, "P14", key_path, f"'{function}' is a {tool.kind}; {used}.")
            return
        usual = self.usual.get(function, {}) if kind == "effect" else {}
        if callable(usual) or "P14" in self.unclear:
            return  # its arguments are known only in a run, or once the manifest can be read
        arguments = {**usual, **args}
        if misfit := _misfit(tool, arguments):
            self.wrong(step, "P14", key_path, misfit)

    def handler(self, step: InstructionFile) -> None:
        """P16: every step has a handler, declarations or an agent, and its functions exist."""
        if step.handler is not None:
            function = self.handlers.find(step.handler)
            if isinstance(function, str) and not self.unsure(step.handler):
                self.wrong(step, "P16", "handler", f"the handler cannot be used: {function}")
        elif not step.declarative:
            agent = step.mode is StepMode.AGENT or step.id in self.agents
            if agent:
                message = "an agent performs it and there is no handler to fall back on."
                self.wrong(step, "W01", "mode", message)
            elif (step.mode is not None or "mode" not in step.places) and not _misspelt(step):
                message = "has no handler: say `handler`, or `call` and `effects`, or `mode: agent`."
                self.wrong(step, "P16", "name", message)
        if step.validator is not None:
            function = self.validators.find(step.validator)
            if isinstance(function, str) and not self.unsure(step.validator):
                self.wrong(step, "P16", "validator", f"the validator cannot be used: {function}")

    def unsure(self, name: str) -> bool:
        """Whether a function may be in a module that could not be read."""
        return "P16" in self.unclear and ":" not in name

    def form(self, step: InstructionFile) -> None:
        """P14, P16, P21: the functions, keys and arguments that a form refers to exist."""
        named: list[tuple[tuple[str, ...], str | None, str]] = []
        named.append((("conclude",), step.conclude, "what concludes from an agent's answer"))
        named.append((("filled_by",), step.filled_by, "what fills in the form"))
        for field in step.form:
            path = ("form", field.name)
            candidates = field.candidates
            named.append(
                ((*path, "candidates"), candidates.function if candidates else None, "what finds candidates")
            )
            if candidates is not None and field.name in step.needs:
                message = f"'{field.name}' is one of the step's needs, too. Give the field another name."
                self.wrong(step, "P21", path_of(*path), message)
            if (
                candidates is not None
                and candidates.within is not None
                and not _among(candidates.within, step.needs)
            ):
                hint = nearest(candidates.within, step.needs)
                message = f"'{candidates.within}' is none of the step's needs.{hint}"
                self.wrong(step, "P21", path_of(*path, "candidates", "in"), message)
            if field.fills is not None:
                self.fills(step, field.fills, path_of(*path, "fills"))
        for place, name, role in named:
            if name is None or self.unsure(name):
                continue
            if isinstance(function := self.handlers.find(name), str):
                self.wrong(step, "P16", path_of(*place), f"{role} cannot be used: {function}")

    def fills(self, step: InstructionFile, target: str, path: str) -> None:
        """A field fills an argument of an effect that the step's own code proposes."""
        function, _, argument = target.rpartition(".")
        if not self.declares(step, function, path):
            return
        if step.handler is None and function not in [effect.function for effect in step.effects]:
            message = f"nothing proposes '{function}': list it in `effects`, or give the step a handler."
            self.wrong(step, "P21", path, message)
        tool = self.tools.get(function)
        if tool is not None and tool.kind != "effect":
            self.wrong(step, "P14", path, f"'{function}' is a {tool.kind}; a form fills in effects.")
        elif tool is not None and argument not in (known := tool.schema.get("properties") or {argument: {}}):
            self.wrong(
                step, "P14", path, f"'{function}' has no argument '{argument}'.{nearest(argument, known)}"
            )

    # -- templates ------------------------------------------------------------------------------------------

    def placeholders(self, step: InstructionFile) -> None:
        """P17: templates exist, and their placeholders are among the keys the step may use."""
        for path, value in step.values():
            for placeholder in placeholders(value):
                self.placeholder(step, placeholder.key, path, placeholder.alone, self.earlier(step, path))
        for effect in step.effects:
            earlier = self.earlier(step, effect.path)
            for name in effect.templates.values():
                variants = [None, *(variant.name for variant in step.variant)]
                for text, file in self.texts(step, name, variants, effect.path):
                    for placeholder in placeholders(text):
                        self.placeholder(
                            step,
                            placeholder.key,
                            effect.path,
                            False,
                            earlier,
                            f"{file}, line {placeholder.line}: ",
                        )

    def earlier(self, step: InstructionFile, place: str) -> tuple[str, ...]:
        """Functions of the effects that precede the one at a path."""
        places = [effect.path for effect in step.effects]
        return (
            tuple(effect.function for effect in step.effects[: places.index(place)])
            if place in places
            else ()
        )

    def placeholder(
        self,
        step: InstructionFile,
        key: str,
        path: str,
        alone: bool,
        earlier: Sequence[str],
        where: str = "",
    ) -> None:
        if any(key == name or key.startswith(f"{name}.") for name in earlier):
            if not alone:
                message = f"{where}{{{{{key}}}}} is known only later, so it must be the whole argument."
                self.wrong(step, "P17", path, message)
            return
        stated = [field.name for field in step.form if field.fills is None and step.conclude is None]
        known = [*step.needs, *step.outputs, *stated, *(call.into for call in step.call), *self.values]
        if key == LANGUAGE or any(key == known_key or key.startswith(f"{known_key}.") for known_key in known):
            return
        message = f"{where}{{{{{key}}}}} is not in the step's needs or outputs.{nearest(key, known)}"
        self.wrong(step, "P17", path, message)

    def texts(
        self, step: InstructionFile | None, name: str, variants: Iterable[str | None], place: str
    ) -> list[tuple[str, str]]:
        """The texts of a template in all its variants and languages; reports missing files."""
        templates: TemplateSet = self.playbook.templates
        base = templates.base(name)

        def missing(message: str) -> None:
            if step is None:
                self.in_manifest("P17", "redirect", message)
            else:
                self.wrong(step, "P17", f"{place}.template", message)

        if base is None:
            known = sorted({template.base for template in templates})
            listed = f" Templates: {', '.join(known)}." if known else ""
            stem = step.id if step is not None and step.id.startswith(name) else name
            file = f"{stem}.{templates.language}.txt"
            missing(f"there is no template '{name}': write the file '{file}'.{nearest(name, known)}{listed}")
            return []
        texts: list[tuple[str, str]] = []
        for variant in variants:
            self.used.add((base, variant))
            for language in templates.languages():
                template = templates.get(base, variant, language)
                if template is None:
                    file = ".".join(part for part in (base, variant, language, "txt") if part)
                    missing(f"there is no template file '{file}'.")
                    continue
                try:
                    texts.append((templates.text(template), template.path.name))
                except UnicodeDecodeError as error:
                    missing(f"template '{template.path.name}' is not UTF-8 text (byte {error.start}).")
        return texts

    def redirect(self) -> None:
        """P14, P17: the manifest's redirect names an existing function and template."""
        declared = redirect_of(self.playbook.manifest)
        if declared is None:
            return
        if declared.function not in self.tools:
            hint = nearest(declared.function, self.tools)
            self.in_manifest("P14", "redirect", f"there is no function '{declared.function}'.{hint}")
        elif (tool := self.tools[declared.function]) is not None and tool.kind != "effect":
            self.in_manifest("P14", "redirect", f"'{declared.function}' is a query; a redirect is an effect.")
        for name in declared.templates.values():
            self.texts(None, name, [None], "redirect")

    def unused_templates(self) -> None:
        """W02: a template that no step uses."""
        if "W02" in self.unclear:
            return
        loader = self.playbook.loader
        python = any(step.handler is not None for step in self.playbook.steps.values())
        for template in self.playbook.templates:
            used = (template.base, template.variant) in self.used
            # Handlers in Python may use the templates of their steps without declaring it.
            if used or (python and self._of_python(template.base)):
                continue
            shown = next(
                (
                    folder.shown(template.path)
                    for folder in loader.folders
                    if template.path.is_relative_to(folder.root)
                ),
                template.path.as_posix(),
            )
            self.findings.append(Problem("W02", "no step uses this template.", Place(shown, 1)))

    def _of_python(self, base: str) -> bool:
        steps = self.playbook.steps
        mine = [name for name in steps if name == base or name.startswith(f"{base}-")]
        return any(steps[name].handler is not None for name in mine)


def _among(key: str, needs: Sequence[str]) -> bool:
    """Whether a dotted key is, or is part of, one of the step's needs."""
    return any(key == need or key.startswith(f"{need}.") for need in needs)


def _misspelt(step: InstructionFile) -> bool:
    """Whether an unknown key of the file (reported elsewhere) looks like `handler` or a declaration."""
    unknown = [key for key in step.places if above(key) == "" != key and key not in (*KEYS, BODY_ARGUMENT)]
    return any(get_close_matches(key, ("handler", *DECLARATIVE), n=1, cutoff=0.6) for key in unknown)


def _misfit(tool: Tool, args: Mapping[str, Any]) -> str | None:
    """Why a function does not take these arguments: an unknown argument before a missing one."""
    try:
        tool.check(args)
    except ConfigurationError as error:
        known = list(tool.schema.get("properties") or ())
        strange = [name for name in args if name not in known]
        if not known or not strange:
            return str(error)
        names = ", ".join(known)
        return f"'{tool.name}' has no argument '{strange[0]}'.{nearest(strange[0], known)} It takes: {names}."
    return None


def _items(step: InstructionFile) -> int:
    """Number of items written in `next`, unusable ones included."""
    return sum(above(key) == "next" for key in step.places)
