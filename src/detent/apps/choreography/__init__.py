"""A song in, an xLights sequence for DMX moving heads out: the application on the refine flow."""
