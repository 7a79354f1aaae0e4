"""Expressions whose value is fixed by their form, whatever the variables in them hold."""

from __future__ import annotations

import ast


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is one that always, or never, holds: `x == x`, `len(x) >= 0`, `x or True`."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return is_constant(operand)
        case ast.BoolOp(op=op, values=values):
            return _is_constant_choice(op, values)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            if is_constant(left) and is_constant(right):
                return True
            if ast.dump(left) == ast.dump(right):
                return not isinstance(op, ast.In | ast.NotIn)
            return _is_constant_bound(left, op, right) or _is_constant_bound(
                right, _TURNED.get(type(op), op), left
            )
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            return (
                is_constant(body)
                and is_constant(otherwise)
                and (ast.dump(body) == ast.dump(otherwise) or is_constant(test))
            )
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="object")]):
            return True
        case ast.Call(func=ast.Name(id="bool"), args=[value]):
            return is_constant(value)
        case ast.BinOp(left=left, right=right):
            return is_constant(left) and is_constant(right)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return all(is_constant(item) for item in items)
        case ast.Compare():
            return all(is_constant(part) for part in (node.left, *node.comparators))
    return False


def _is_constant_choice(op: ast.boolop, values: list[ast.expr]) -> bool:
    if all(is_constant(value) for value in values):
        return True
    decisive = isinstance(op, ast.Or)  # a true part decides `or`, a false one `and`
    if any(isinstance(value, ast.Constant) and bool(value.value) is decisive for value in values):
        return True
    trees = {ast.dump(value) for value in values}
    negated = {
        ast.dump(value.operand)
        for value in values
        if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    }
    return bool(trees & negated)


_TURNED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.Gt(), ast.LtE: ast.GtE(), ast.Gt: ast.Lt(), ast.GtE: ast.LtE(),
}  # fmt: skip


def _is_constant_bound(left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool:
    """Whether it compares a length, which is never negative, with a bound it cannot cross."""
    if not (
        isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id in ("len", "abs")
    ):
        return False
    bound = _number(right)
    if bound is None:
        return False
    return (isinstance(op, ast.GtE | ast.Lt) and bound <= 0) or (
        isinstance(op, ast.Gt | ast.LtE | ast.Eq | ast.NotEq) and bound < 0
    )


def _number(node: ast.expr) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -float(value)
    return None
