"""The whole shape of each payload in words, as prompts show it."""
