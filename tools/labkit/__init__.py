"""The parts of tools/lab."""
