"""What people write, as typed values with places: documents, problems, names, templates.

Belongs here: whatever turns the text of a file into values, or says what is wrong with it and where. Does not
belong here: what the values mean, which only the kind of workflow, case or setting they describe can say.
"""
