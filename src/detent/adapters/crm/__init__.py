"""A CRM behind HTTP: devices to look up, tickets to open."""
