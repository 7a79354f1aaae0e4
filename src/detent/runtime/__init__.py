"""The composition root: reads the project's settings and chooses the concrete things."""
