"""Errors of the generators: each message is one sentence that says what is wrong and what to do."""


class GeneratorError(ValueError):
    """A stream cannot be generated as described, or not into the topic given."""
