"""What the flow knows of data science: problems, tables, the catalogue of stages and steps."""
