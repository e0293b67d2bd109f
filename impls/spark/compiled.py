"""Classes of this package for the JVM, made from their source by Janino; the first is a source that begins epochs.

Structured Streaming starts no epoch on idle input, and a migration would stand still. The class for the JVM is
`Heartbeat.java`. Spark's own `rate` source beats every second only: an idle query moved its bins in steps of a second.
What the driver knows of an epoch is in no row of the stream: Spark reports it as metrics of this source, for listeners
and in the query's progress.
"""

import json
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryProgress

from impls.driver.driver import Driver

_JAVA_VERSION = 8  # of the class file; Janino writes no later one
_loaders: dict[tuple[str, Path], Any] = {}


def new_object(
    spark: SparkSession,
    source: Path,
    *arguments: Any,
    beside: Sequence[str] = (),
    constants: Mapping[str, int | str] | None = None,
    in_tasks: bool = False,
) -> Any:
    """Returns an object of the class rescale.NAME in a file NAME.java, which is compiled once in a session.

    Args:
        spark: the session.
        source: the file.
        arguments: those of the class's first constructor.
        beside: further files of its folder, with classes that it uses.
        constants: those of a class rescale.Wire that it uses too.
        in_tasks: whether the class runs in tasks too, which get it as a jar.

    Raises:
        Py4JError: it does not compile, as where a version of Spark has another inside.
    """
    gateway: Any = spark.sparkContext._gateway
    name = (str(spark.sparkContext.applicationId), source)
    if name not in _loaders:
        for ended in [key for key in _loaders if key[0] != name[0]]:
            del _loaders[ended]
        sources = [source, *(source.with_name(other) for other in beside)]
        _loaders[name] = _compiled(spark, gateway, sources, constants or {}, in_tasks)
    given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return _loaders[name].loadClass(f"rescale.{source.stem}").getConstructors()[0].newInstance(given)


def _compiled(
    spark: SparkSession, gateway: Any, sources: list[Path], constants: Mapping[str, int | str], in_tasks: bool
) -> Any:
    """Compiles classes, hands them to tasks as a jar where they run it, and returns a class loader that has them."""
    jvm = gateway.jvm
    parent = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    folder = Path(tempfile.mkdtemp(dir=spark.sparkContext._temp_dir))
    if constants:
        sources = [*sources, folder / "Wire.java"]
        sources[-1].write_text(_class_of(constants))
    files = gateway.new_array(jvm.java.io.File, len(sources))
    for place, source in enumerate(sources):
        files[place] = jvm.java.io.File(str(source))
    compiler = jvm.org.codehaus.janino.Compiler()
    compiler.setIClassLoader(jvm.org.codehaus.janino.ClassLoaderIClassLoader(parent))
    compiler.setTargetVersion(_JAVA_VERSION)
    compiler.setDestinationDirectory(jvm.java.io.File(str(folder)), False)
    compiler.compile(files)
    with zipfile.ZipFile(jar := folder / f"rescale-{sources[0].stem.lower()}.jar", "w") as out:
        for path in sorted(folder.rglob("*.class")):
            out.write(path, path.relative_to(folder))
    if in_tasks:
        spark.sparkContext._jsc.sc().addJar(str(jar))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    return jvm.java.net.URLClassLoader(urls, parent)


def _class_of(constants: Mapping[str, int | str]) -> str:
    """Returns the source of the class rescale.Wire.

    >>> print(_class_of({"SENT": 2, "ROW": "rescale_row"}))
    package rescale;
    <BLANKLINE>
    class Wire {
        static final int SENT = 2;
        static final String ROW = "rescale_row";
    }
    <BLANKLINE>
    """
    lines = [
        f"    static final {'int' if isinstance(value, int) else 'String'} {name} = {json.dumps(value)};"
        for name, value in constants.items()
    ]
    return "\n".join(["package rescale;", "", "class Wire {", *lines, "}", ""])


METRICS = (
    "records", "results", "queued", "misplaced", "migrations", "moved_bins", "moved_bytes", "planned_bins",
    "planned_bytes", "rebuilt", "state_bytes", "workers",
)  # fmt: skip
_NAME = "rescale"  # of the source in a query's progress
_SOURCE = Path(__file__).with_name("Heartbeat.java")


def metrics_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Returns the metrics of a query in micro-batches, see `METRICS`; {} for another query, or before the first epoch.

    >>> def onQueryProgress(self, event):  # of a StreamingQueryListener
    ...     print(metrics_of(event.progress)["moved_bytes"])
    """
    told = [source.metrics for source in progress.sources if source.description == _NAME]
    return {name: int(value) for metrics in told for name, value in metrics.items()}


class Heartbeat:
    """The heartbeat of one query."""

    def __init__(self, spark: SparkSession):
        self._spark, self._name, self._hurries = spark, uuid.uuid4().hex, False
        self._source = new_object(spark, _SOURCE)

    def added_to(self, df: DataFrame) -> DataFrame:
        """Returns the records of a DataFrame with the heartbeat beside them; Spark's plan has no partition for it."""
        beats = DataFrame(self._source.load(self._spark._jsparkSession, self._name), self._spark).where(F.lit(False))
        return df.unionByName(beats.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in df.schema.fields]))

    def hurry(self, on: bool = True) -> None:
        """Has epochs follow each other at once, or again every second."""
        if on != self._hurries:
            self._hurries = on
            self._source.hurry(self._name, on)

    def tell(self, metrics: Mapping[str, Any]) -> None:
        """Gives Spark the metrics of the epoch that it runs."""
        self._source.tell(self._name, ",".join(f"{name}={metrics.get(name) or 0}" for name in METRICS))


def with_heartbeat(df: DataFrame, driver: Driver) -> tuple[DataFrame, Callable[[], None]]:
    """Returns the records with a heartbeat that a driver hurries, and what is called behind each epoch."""
    heartbeat = Heartbeat(df.sparkSession)
    driver.on_command = heartbeat.hurry

    def tell() -> None:
        heartbeat.tell(driver.metrics.counts())
        heartbeat.hurry(driver.hurries)

    return heartbeat.added_to(df), tell
