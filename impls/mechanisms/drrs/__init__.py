"""DRRS: subscales, few at a time, whose state is fetched in the order of need."""
