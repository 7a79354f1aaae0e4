"""How runs are judged: what happened is held against what a case expects. Knows no kind of workflow."""
