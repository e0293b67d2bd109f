"""What it costs that state can move: the same step without bins, plans and journals, in turns with the real one."""
