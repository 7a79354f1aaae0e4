"""Diagrams of a table, as Mermaid text and as SVG; the entry point is `diagram`."""
