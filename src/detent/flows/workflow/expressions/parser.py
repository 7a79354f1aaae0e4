"""The parser: turns the tokens of an expression into a checked tree and its references.

    expr       = or , [ "if" , or , "else" , expr ]
    or         = and , { "or" , and }
    and        = not , { "and" , not }
    not        = "not" , not | comparison
    comparison = value , [ ( "==" | "!=" | "<=" | ">=" | "<" | ">" | "in" | "not" , "in" ) , value ]
    value      = ( literal | list | reference | call | "(" , expr , ")" ) , { accessor }

Each rule is a method of the same name. After a dot, a keyword is a name. Inputs and steps are read by name,
so `inputs[0]` is a parse error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, NoReturn, cast

from detent.flows.workflow.expressions.errors import ExpressionError
from detent.flows.workflow.expressions.functions import ARGUMENTS
from detent.flows.workflow.expressions.limits import MAX_CHARACTERS, MAX_DEPTH, MAX_JSON_DEPTH
from detent.flows.workflow.expressions.tokens import Token, tokens
from detent.flows.workflow.expressions.tree import (
    Call,
    Chain,
    Choice,
    Comparison,
    Constant,
    Items,
    Key,
    Name,
    Node,
    Not,
    Path,
    Reference,
    Root,
)
from detent.kernel.errors import nearest

ROOTS = ("inputs", "steps", "item", "index")
PARTS = ("output", "status")
KEYWORDS = ("and", "or", "not", "in", "if", "else", "true", "false", "null")
CONSTANTS = {"true": True, "false": False, "null": None}
COMPARING = ("==", "!=", "<=", ">=", "<", ">")
_MEANT = {"None": "null", "nil": "null", "none": "null", "True": "true", "False": "false"}


class Parsed(NamedTuple):
    """A parsed expression."""

    tree: Node
    references: tuple[Reference, ...]


def parsed(text: str, start: int, end: int) -> Parsed:
    """Parse `text[start:end]`; positions are offsets in `text`."""
    while start < end and text[start] in " \t\r\n":
        start += 1
    while end > start and text[end - 1] in " \t\r\n":
        end -= 1
    if end - start > MAX_CHARACTERS:
        raise ExpressionError(
            f"An expression has at most {MAX_CHARACTERS} characters; this one has {end - start}.", start, text
        )
    if start == end:
        raise ExpressionError("An expression is missing.", start, text)
    return _Parser(text, list(tokens(text, start, end))).whole()


class _Parser:
    """Reads tokens from left to right, one method for each rule."""

    def __init__(self, text: str, words: list[Token]) -> None:
        self.text = text
        self.words = words
        self.next = words[0]
        self.at = 0
        self.depth = 0
        self.guards = 0
        self.jsons = 0
        self.references: list[Reference] = []

    def whole(self) -> Parsed:
        tree = self.expr()
        if self.next.kind != "end":
            self.refuse_rest()
        return Parsed(tree, tuple(self.references))

    # --- rules --------------------------------------------------------------------------------------

    def expr(self) -> Node:
        value = self.or_()
        start = self.next
        if not self.take("name", "if"):
            return value
        condition = self.or_()
        if not self.take("name", "else"):
            self.refuse(f"'else' is missing before {self.next}: a choice is written 'a if b else c'.")
        self.deeper(start)
        otherwise = self.expr()
        self.depth -= 1
        return Choice(value, condition, otherwise, start.position)

    def or_(self) -> Node:
        return self.chain("or", self.and_)

    def and_(self) -> Node:
        return self.chain("and", self.not_)

    def chain(self, word: Literal["and", "or"], operand: Callable[[], Node]) -> Node:
        operands = [operand()]
        while self.take("name", word):
            operands.append(operand())
        return operands[0] if len(operands) == 1 else Chain(word, tuple(operands), operands[0].position)

    def not_(self) -> Node:
        start = self.next
        if not self.take("name", "not"):
            return self.comparison()
        self.deeper(start)
        operand = self.not_()
        self.depth -= 1
        return Not(operand, start.position)

    def comparison(self) -> Node:
        left = self.value()
        position = self.next.position
        sign = self.sign()
        if sign is None:
            return left
        right = self.value()
        second = self.next
        if self.sign() is not None:
            self.next = second
            self.refuse("Comparisons cannot follow each other. Write 'a < b and b < c', or use parentheses.")
        return Comparison(sign, left, right, position)

    def sign(self) -> str | None:
        word = self.next
        if word.kind == "sign" and word.text in COMPARING:
            self.advance()
            return word.text
        if self.take("name", "in"):
            return "in"
        if word.kind == "name" and word.text == "not" and self.words[self.at + 1][:2] == ("name", "in"):
            self.advance()
            self.advance()
            return "not in"
        return None

    def value(self) -> Node:
        node = self.bare_value()
        keys: list[Key] = []
        positions: list[int] = []
        if isinstance(node, Path):  # of parentheses: (a.b).c is a.b.c
            keys, positions, node = [*node.keys], [*node.positions], node.base
        while self.next.kind == "sign" and self.next.text in (".", "["):
            positions.append(self.next.position)
            keys.append(self.accessor())
        if self.next.kind == "sign" and self.next.text == "(":
            self.refuse(f"Only functions can be called: {', '.join(ARGUMENTS)}.")
        return Path(node, tuple(keys), tuple(positions)) if keys else node

    def bare_value(self) -> Node:
        word = self.next
        if word.kind in ("number", "text"):
            self.advance()
            return Constant(word.value, word.position)
        if self.take("sign", "("):
            self.deeper(word)
            node = self.expr()
            self.depth -= 1
            self.close(")", word)
            return node
        if self.take("sign", "["):
            return self.list_(word)
        if word.kind != "name" or (word.text in KEYWORDS and word.text not in CONSTANTS):
            self.refuse(f"A value is missing before {word}.")
        self.advance()
        if word.text in CONSTANTS:
            return Constant(CONSTANTS[word.text], word.position)
        if self.next.kind == "sign" and self.next.text == "(":
            return self.call(word)
        if word.text in ROOTS:
            return self.reference(word)
        self.unknown(word)

    def list_(self, start: Token) -> Node:
        self.deeper(start)
        items: list[Node] = []
        if not self.take("sign", "]"):
            items.append(self.expr())
            while self.take("sign", ","):
                items.append(self.expr())
            self.close("]", start)
        self.depth -= 1
        return Items(tuple(items), start.position)

    def call(self, function: Token) -> Node:
        name = function.text
        if name not in ARGUMENTS:
            self.next = function
            self.refuse(
                f"There is no function '{name}'.{nearest(name, ARGUMENTS)} Known: {', '.join(ARGUMENTS)}."
            )
        self.deeper(function)
        start = self.next
        self.advance()
        self.jsons += name == "json"
        if self.jsons > MAX_JSON_DEPTH:
            self.next = function
            self.refuse(f"json may stand in json at most {MAX_JSON_DEPTH} deep.")
        self.guards += name == "default"
        arguments = [self.expr()]
        self.guards -= name == "default"
        while self.take("sign", ","):
            arguments.append(self.expr())
        self.close(")", start)
        self.jsons -= name == "json"
        self.depth -= 1
        if len(arguments) != ARGUMENTS[name]:
            self.next = function
            expected = "one argument" if ARGUMENTS[name] == 1 else "two arguments"
            self.refuse(f"{name} takes {expected}; {len(arguments)} were given.")
        return Call(name, tuple(arguments), function.position)

    def reference(self, root: Token) -> Node:
        name: str | None = None
        part: str | None = None
        if root.text in ("inputs", "steps"):
            start = self.next
            if start.kind != "sign" or start.text not in (".", "["):
                example = "inputs.name" if root.text == "inputs" else "steps.name.output"
                self.refuse(f"'{root.text}' is read by name: {example}.")
            key = self.accessor()
            if isinstance(key, int):
                self.next = start
                self.refuse(f"'{root.text}' is read by name, not by number.")
            name = key
        if root.text == "steps":
            part = self.part()
        self.references.append(Reference(cast(Name, root.text), name, self.guards > 0, root.position))
        return Root(cast(Name, root.text), name, part, root.position)

    def part(self) -> str:
        dot = self.take("sign", ".")
        word = self.next
        if not dot or word.kind != "name" or word.text not in PARTS:
            near = nearest(word.text, PARTS) if dot else ""
            self.refuse(f"Of a step only '.output' and '.status' can be read.{near}")
        self.advance()
        return word.text

    def accessor(self) -> Key:
        start = self.next
        self.advance()
        word = self.next
        if start.text == ".":
            if word.kind != "name":
                self.refuse(f"A name is missing after '.', before {word}. Read items as [0].")
            self.advance()
            return self.public(word, word.text)
        if word.kind == "text":
            self.advance()
            self.close("]", start)
            return self.public(word, word.value)
        if word.kind == "number" and isinstance(word.value, int):
            self.advance()
            self.close("]", start)
            return word.value
        self.refuse(f"Between '[' and ']' stands a whole number or a name in quotes, not {word}.")

    # --- tokens -------------------------------------------------------------------------------------

    def advance(self) -> None:
        self.at = min(self.at + 1, len(self.words) - 1)
        self.next = self.words[self.at]

    def take(self, kind: str, text: str) -> bool:
        """Consume a token if it is the next one."""
        if self.next.kind == kind and self.next.text == text:
            self.advance()
            return True
        return False

    def close(self, sign: str, opened: Token) -> None:
        if not self.take("sign", sign):
            self.refuse(f"'{sign}' is missing before {self.next}, to close '{opened.text}'.")

    def deeper(self, start: Token) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.next = start
            self.refuse(f"Expressions stand inside each other at most {MAX_DEPTH} deep.")

    def public(self, word: Token, name: str) -> str:
        if name.startswith("_"):
            self.next = word
            self.refuse(f"'{name}' begins with '_' and cannot be read.")
        return name

    # --- refusals -----------------------------------------------------------------------------------

    def refuse(self, message: str) -> NoReturn:
        raise ExpressionError(message, self.next.position, self.text)

    def unknown(self, word: Token) -> NoReturn:
        self.next = word
        if word.text in ARGUMENTS:
            self.refuse(f"'{word.text}' is a function: write {word.text}(…).")
        meant = _MEANT.get(word.text)
        near = f" Did you mean '{meant}'?" if meant else nearest(word.text, (*ROOTS, *CONSTANTS))
        self.refuse(
            f"There is no '{word.text}'.{near} Values begin with {', '.join(ROOTS)}; texts stand in quotes."
        )

    def refuse_rest(self) -> NoReturn:
        word = self.next
        if word.kind == "number" and word.text.startswith("-"):
            self.refuse("There is no arithmetic.")
        if word.kind == "name" and word.text in ("for", "is", "lambda"):
            self.refuse(f"There is no '{word.text}' in an expression.")
        self.refuse(f"{word!s} is not expected here: the expression could end before it.")
