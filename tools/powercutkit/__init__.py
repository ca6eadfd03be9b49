"""What a power cut may leave of a disk: the parts of tools/powercut."""
