"""How long and how deep an expression may be."""

MAX_CHARACTERS = 2000
"""Of one expression, without the white space around it; a text may hold many."""
MAX_DEPTH = 32
"""How often an expression may stand inside another: a parenthesis, a list, an argument, `not` and `else` each
go one deeper. Chains of `and`, `or` and accessors stay on their level."""
MAX_JSON_DEPTH = 4
"""`json` inside `json`: every level may double the backslashes of the one before."""
MAX_VALUE_DEPTH = 200
"""How deep a value with templates in it may be nested."""
MAX_NAMES = 20
"""How many of the available names an error lists."""
