"""Reads journals and tables and says something about them: figures, stories, reasons, drawings."""
