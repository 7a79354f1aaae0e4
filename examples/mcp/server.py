"""A small MCP server: pages of a handbook that can be searched and added to.

It is written with the official SDK. New pages go into `handbook.txt`, where you can see them.
"""

from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

BOOK = Path(__file__).parent / "handbook.txt"
PAGES = {"lamps": "Lamps are covered for two years.", "stoves": "Stoves are covered for five years."}

server = MCPServer("handbook")


def added() -> dict[str, str]:
    """Pages that were added, by title."""
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    return dict(line.split("\t", 1) for line in lines)


@server.tool()
def search(words: str) -> dict[str, list[str]]:
    """Find the pages about a topic."""
    everything = {**PAGES, **added()}
    return {"pages": [text for title, text in everything.items() if words in title]}


@server.tool()
def add_page(title: str, text: str) -> dict[str, str]:
    """Add a page. A title can be used once; adding the same page again changes nothing."""
    there = added().get(title) or PAGES.get(title)
    if there is not None and there != text:
        raise ToolError(f"there is another page called '{title}' already")
    if there is None:
        with BOOK.open("a") as file:
            file.write(f"{title}\t{text}\n")
    return {"id": title}


if __name__ == "__main__":
    server.run("stdio")
