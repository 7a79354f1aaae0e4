"""Domain knowledge of workflows, independent of the engine: diffs, commit messages, rules for rows."""
