"""The coding assistant on a terminal: requests shown as they run, questions, the prompt line, endings."""
