"""The dispatcher: who performs a step, what the gate lets pass, and that nothing ever gets worse by it."""
