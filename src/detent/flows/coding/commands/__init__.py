"""Commands of the coding assistant: one request, a conversation, the measurement."""
