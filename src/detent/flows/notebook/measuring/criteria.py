"""Criteria: what an acceptance text asks for, as one Python expression that a kernel can evaluate.

Belongs here: reading a text, the policy on expressions, the criteria of a goal. Values are judged by the
kernel, and what they say of artifacts is `artifacts`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from detent.adapters.jupyter.cell_result import EvalResult
from detent.flows.notebook.domain.problem import Threshold
from detent.flows.notebook.measuring.always_true import is_constant
from detent.flows.notebook.measuring.expressions import free_names
from detent.flows.notebook.state.facts import CriterionFact
from detent.kernel.errors import ConfigurationError, nearest

Refusal = Literal[
    "prose", "statement", "too_long", "forbidden_name", "dunder", "assignment", "changes_its_object",
    "changes_files", "constant", "unknown_name",
]  # fmt: skip
"""Why a text is no criterion."""

LONGEST = 500
"""Characters of an expression."""
ALWAYS_KNOWN = frozenset({"os", "math", "json", "Path", "np", "pd", "joblib"})
"""Names that a criterion may use even if no cell imports them."""

_BUILTINS = frozenset(dir(builtins))
_FORBIDDEN = frozenset(
    {
        "exec", "eval", "compile", "open", "setattr", "delattr", "input", "breakpoint", "globals", "locals",
        "vars", "exit", "quit", "help", "print", "get_ipython",
    }
)  # fmt: skip
_CHANGES_OBJECT = frozenset(
    {
        "append", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault", "discard",
        "sort", "reverse", "fit", "fit_transform", "fit_predict", "partial_fit", "set_params", "setattr",
        "setflags", "seed", "shuffle", "exec", "eval",
    }
)  # fmt: skip
_CHANGES_FILES = frozenset(
    {
        "write_text", "write_bytes", "unlink", "touch", "mkdir", "rmdir", "rename", "chmod", "symlink_to",
        "hardlink_to", "dump", "savefig", "to_csv", "to_parquet", "to_pickle", "to_excel", "to_feather",
        "to_hdf", "to_sql", "save", "savez", "savetxt", "tofile", "open",
    }
)  # fmt: skip
_MODULE_PARTS = {
    "os": frozenset({"path", "stat", "listdir", "scandir", "getcwd", "sep", "environ"}),
    "joblib": frozenset({"load", "hash"}),
}
"""Of modules that can do harm, what a criterion may use."""

_IN_BACKTICKS = re.compile(r"`([^`]+)`")
_LITERAL = re.compile(r"`[^`\n]*`|(?<!\w)([rbfu]{0,2})(['\"])(?:\\.|(?!\2)[^\\\n])*\2")
_LABEL = re.compile(r"\b(?:acceptance(?: criteria)?)\s*:", re.IGNORECASE)
_NEXT_LABEL = re.compile(
    r"(?:^|[.;\n])\s*(?:artifacts?|inputs?|outputs?|notes?|focus|goal)\s*:", re.IGNORECASE
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


class CriterionRefused(ConfigurationError):
    """A text cannot be used as a criterion."""

    def __init__(self, text: str, reason: Refusal, message: str) -> None:
        self.text = text
        self.reason: Refusal = reason
        short = text if len(text) <= 80 else f"{text[:79]}…"
        super().__init__(f"The criterion '{short}' cannot be evaluated: {message}")


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion that a kernel can evaluate."""

    text: str
    """The expression, as it was written."""
    tree: str
    """Its syntax, written so that equal trees are equal texts."""
    names: frozenset[str]
    """Names it takes from the notebook, builtins left out."""
    texts: frozenset[str]
    """The string literals in it: a file artifact is named by its path."""
    locked: bool = False
    """It is a threshold of the user's."""

    def mentions(self, artifact: str) -> bool:
        """Whether it names an artifact: a variable, or a file or folder by its path."""
        if "/" not in artifact:
            return artifact in self.names
        path = artifact.removeprefix("./")
        named = {text.removeprefix("./") for text in self.texts}
        if path.endswith("/"):
            return path[:-1] in named or any(text.startswith(path) for text in named)
        return path in named


def parse_criterion(text: str, known: Collection[str] | None = None, *, locked: bool = False) -> Criterion:
    """Read a criterion. Text in backticks, or after a last `: `, is taken if the whole is no expression.

    With `known`, names that are neither there nor known to every criterion are refused.

    Raises:
        CriterionRefused: `reason` says why.
    """
    expression, tree = _expression(text)
    if len(expression) > LONGEST:
        raise CriterionRefused(text, "too_long", f"it has more than {LONGEST} characters.")
    _check_policy(text, tree)
    names = free_names(expression) - _BUILTINS
    if known is not None:
        _check_known(text, names, known)
    if not names or is_constant(tree.body):
        raise CriterionRefused(text, "constant", "its value is the same whatever was produced.")
    texts = frozenset(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return Criterion(expression, ast.dump(tree.body), names, texts, locked)


def _expression(text: str) -> tuple[str, ast.Expression]:
    """The expression in a text, and its tree."""
    whole = text.strip()
    candidates = [whole, *_IN_BACKTICKS.findall(whole)]
    # After the last colon that has an expression behind it: the one in `x[0: 3]` has none.
    colons = [match.end() for match in re.finditer(r": ", whole)]
    candidates += [whole[at:] for at in reversed(colons)]
    for candidate in candidates:
        expression = candidate.strip().strip("`").strip()
        try:
            # Very deep nesting is refused as what cannot be read, not as a fault of ours.
            return expression, ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    try:
        is_python = bool(ast.parse(whole.strip("`")).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        is_python = False
    if not is_python:
        raise CriterionRefused(text, "prose", "it is not a Python expression.")
    raise CriterionRefused(text, "statement", "it is a statement; an expression is needed.")


def _check_known(text: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in sorted(names):
        if name not in known and name not in ALWAYS_KNOWN:
            hint = nearest(name, known)
            raise CriterionRefused(text, "unknown_name", f"nothing defines '{name}'.{hint}")


def _check_policy(text: str, tree: ast.AST) -> None:
    def refuse(reason: Refusal, message: str) -> CriterionRefused:
        return CriterionRefused(text, reason, message)

    for node in ast.walk(tree):
        match node:
            case ast.NamedExpr():
                raise refuse("assignment", "it assigns a name.")
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                raise refuse("statement", "it waits or yields.")
            case ast.Name(id=name) if name in _FORBIDDEN:
                raise refuse("forbidden_name", f"'{name}' may not be used.")
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.startswith("__"):
                raise refuse("dunder", f"'{name}' may not be used.")
            case ast.Attribute(value=ast.Name(id=module), attr=part):
                if part not in _MODULE_PARTS.get(module, {part}):
                    raise refuse("forbidden_name", f"'{module}.{part}' may not be used.")
            case ast.Call():
                for function in (node.func, *node.args):  # also as an argument: `map(x.append, y)`
                    _check_function(function, refuse)
                _check_getattr(node, refuse)
            case ast.keyword(arg="inplace", value=value) if not _is_false(value):
                raise refuse("changes_its_object", "'inplace' changes what it is called on.")


def _check_function(function: ast.expr, refuse: Callable[[Refusal, str], CriterionRefused]) -> None:
    if not isinstance(function, ast.Attribute):
        return
    if function.attr in _CHANGES_OBJECT:
        raise refuse("changes_its_object", f"'.{function.attr}' may change what it is called on.")
    if function.attr in _CHANGES_FILES:
        raise refuse("changes_files", f"'.{function.attr}' may write files.")


def _check_getattr(call: ast.Call, refuse: Callable[[Refusal, str], CriterionRefused]) -> None:
    if not (isinstance(call.func, ast.Name) and call.func.id == "getattr"):
        return
    named = call.args[1] if len(call.args) > 1 else None
    if not (isinstance(named, ast.Constant) and isinstance(named.value, str)):
        raise refuse("forbidden_name", "'getattr' needs a name that is written out.")
    if named.value.startswith("__") or named.value in _CHANGES_OBJECT | _CHANGES_FILES:
        raise refuse("dunder", f"'{named.value}' may not be used.")


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def compared_side(text: str) -> str | None:
    """The side of a comparison that is measured; None for what is no single comparison."""
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return None
    return next(
        (ast.unparse(side) for side in (tree.left, *tree.comparators) if not isinstance(side, ast.Constant)),
        None,
    )


# -- goals --------------------------------------------------------------------------------------------------


class GoalCriteria(NamedTuple):
    """The `Acceptance:` part of a goal's text."""

    criteria: tuple[Criterion, ...]
    notes: tuple[str, ...]
    """Pieces that say something no kernel can evaluate."""


def read_goal(goal: str, known: Collection[str]) -> GoalCriteria:
    """The criteria and notes of a goal: comparisons, calls and boolean expressions over known names."""
    criteria: list[Criterion] = []
    notes: list[str] = []
    for piece in acceptance_pieces(goal):
        try:
            criterion = parse_criterion(piece, known)
        except CriterionRefused:
            notes.append(piece)
            continue
        if isinstance(ast.parse(criterion.text, mode="eval").body, _ASKS):
            if all(criterion.tree != other.tree for other in criteria):
                criteria.append(criterion)
        else:
            notes.append(piece)
    return GoalCriteria(tuple(criteria), tuple(notes))


_ASKS = (ast.Compare, ast.Call, ast.BoolOp, ast.UnaryOp)


def acceptance_pieces(goal: str) -> tuple[str, ...]:
    """The pieces of a goal's `Acceptance:` part: split at `;`, line ends and commas outside brackets."""
    label = _LABEL.search(goal)
    if label is None:
        return ()
    part = goal[label.end() :]
    following = _NEXT_LABEL.search(part)
    if following is not None:
        part = part[: following.start()]
    return tuple(piece for line in part.split("\n") for piece in _split(line))


def _split(line: str) -> list[str]:
    """The pieces of one line; what stands in brackets, quotes or backticks is not split."""
    kept = {at for literal in _LITERAL.finditer(line) for at in range(*literal.span())}
    kept.update(comma.start() for comma in _THOUSANDS.finditer(line))
    pieces, begin, depth = [], 0, 0
    for at, character in enumerate(line):
        if at in kept:
            continue
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth = max(0, depth - 1)
        elif character == ";" or (character == "," and depth == 0):
            pieces.append(line[begin:at])
            begin, depth = at + 1, 0
    pieces.append(line[begin:])
    cleaned = (re.sub(r"^\s*(?:[-*•]|\d+[.)])\s+|^\s*and\s+", "", piece).strip() for piece in pieces)
    return [piece for piece in (_without_full_stop(text) for text in cleaned) if piece]


def _without_full_stop(piece: str) -> str:
    # `x > 1.` may be a number's point; nobody writes that in a goal.
    return piece[:-1].rstrip() if piece.endswith(".") and not piece.endswith("..") else piece


# -- thresholds and verdicts --------------------------------------------------------------------------------


def threshold_criterion(threshold: Threshold, holder: str) -> Criterion:
    """The locked criterion of a user's threshold on the scores that a variable holds."""
    text = f'{holder}["{threshold.metric}"] {threshold.comparison} {threshold.value!r}'
    return parse_criterion(text, locked=True)


def judge(criterion: Criterion, result: EvalResult) -> CriterionFact:
    """A criterion with its value: it passed if the value is True and nothing else."""
    if result.error is not None:
        return CriterionFact(criterion.text, False, result.error, criterion.locked)
    return CriterionFact(criterion.text, result.truth, result.value_repr, criterion.locked)
