"""The timeline of a show, drawn as SVG and PNG."""
