"""From an implementation in bars to DMX values, the xLights file and the picture, and back."""
