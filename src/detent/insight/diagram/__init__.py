"""Drawings of a table, as Mermaid text and as SVG; `diagram` is the door."""
