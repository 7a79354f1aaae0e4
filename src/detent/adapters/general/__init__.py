"""Functions that anybody's playbook may name: look a row up, write a file, send a mail."""
