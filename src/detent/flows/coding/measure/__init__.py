"""How often a rule calls a request complete too early, measured over scenarios with scripted replies."""
