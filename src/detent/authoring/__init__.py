"""Files written by people, read into typed values with places: documents, problems, names, templates.

Belongs here: code that turns the text of a file into values, or reports problems and their places. Does not
belong here: the meaning of the values, which depends on the workflow, case or setting they describe.
"""
