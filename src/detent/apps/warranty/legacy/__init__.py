"""Legacy mode: detect the scenario of a mail, then handle all of it in one step."""
