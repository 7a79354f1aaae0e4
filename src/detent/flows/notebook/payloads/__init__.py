"""The six payloads: typed values, XML in and out."""
