"""Sessions of the coding assistant as files: what journals add up to, enough to go on elsewhere."""
