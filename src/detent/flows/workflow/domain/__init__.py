"""What workflows know of their subjects, true with no engine near: diffs, commit messages, rules for rows."""
