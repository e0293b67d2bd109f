"""The migration runtime: plans, stores, the worker core and the driver that runs one epoch after another."""
