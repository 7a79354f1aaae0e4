"""What is heard in a song: beats, bars, sections, energy, harmony."""
