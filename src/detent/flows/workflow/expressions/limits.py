"""Limits on the size and depth of expressions."""

MAX_CHARACTERS = 2000
"""Characters of one expression, without surrounding white space; a text may hold several expressions."""
MAX_DEPTH = 32
"""Levels of nested expressions: a parenthesis, a list, an argument, `not` and `else` each add one. Chains of
`and`, `or` and accessors add none."""
MAX_JSON_DEPTH = 4
"""`json` inside `json`: every level may double the backslashes of the one before."""
MAX_VALUE_DEPTH = 200
"""Levels of nested values that hold templates."""
MAX_NAMES = 20
"""Most available names that an error lists."""
