"""The tools of the application: the registry of devices and the service tickets, in SQLite or in a CRM."""
