"""The resident process: one pipeline, asked over HTTP, a local socket and MCP."""
