"""The package as its users install it: its version, its command, and what a first program needs around a query.

The library is `impls`; the benchmark is `generators`, `harness` and `plots`.
"""

from pathlib import Path

__all__ = ["connector"]

__version__ = "0.2.0"


def connector() -> list[Path]:
    """Returns the jars of Spark's Kafka connector, for `impls.spark.session.spark_session` or Spark's `spark.jars`.

    They are fetched once, into the folder that RESCALE_CACHE names, else into the user's cache folder.

    Raises:
        UsageError: no Java, no network, or a jar that is not the one expected.
    """
    from harness.setup.java import ensure_jars

    return list(ensure_jars().spark)
