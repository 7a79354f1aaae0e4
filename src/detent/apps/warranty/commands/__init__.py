"""The commands about the warranty mailbox: `warranty …`, and `run warranty`."""
