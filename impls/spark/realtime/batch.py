"""How long a batch of Spark's lasts by default; a module of its own, as help texts are shown without loading Arrow."""

BATCH = "5 minutes"
"""At its end records wait for 0.2 to 0.4 s, and nobody needs that end otherwise."""
