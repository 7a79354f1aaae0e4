"""What a text to a customer may say, as far as it has a form: a fact explains every form."""
