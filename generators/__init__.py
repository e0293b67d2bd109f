"""Seeded, replayable, open-loop load: keys, schedules, the record layout and the producer process."""
