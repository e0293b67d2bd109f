"""None: measures and never rescales."""

from impls.autoscale import Decision, Measured


def decide(measured: Measured) -> Decision:
    """Returns no change, whatever was measured."""
    return Decision(None, f"The number of workers stays {measured.workers}, as this policy never changes it.")
