"""Tools of MCP servers, as queries and effects."""
