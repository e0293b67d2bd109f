"""Rows that let Arrow's writer send what it has when nothing follows: a class for the JVM, made by Spark's compiler.

Between Kafka and Python a record would wait until the record behind it has come, and without an input for ever. Nothing
in Spark's SQL can look at the time while no row comes, so a small iterator does (`Flush.java`).
"""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["flushing"]

_PAD = "pad"  # the last column: null, but in rows that fill a batch

_SOURCE = Path(__file__).with_name("Flush.java")
_CLASS = "rescale.Flush"
_JAVA_VERSION = 8  # of the class file; Janino writes no later one
_loaders: dict[str, Any] = {}


def flushing(df: DataFrame, *, full_bytes: int, idle_us: int, linger_us: int) -> DataFrame:
    """Returns the rows of a DataFrame with a further column `pad`, and rows of nulls behind those that nothing follows.

    Args:
        df: records.
        full_bytes: that make an Arrow batch full (`spark.sql.execution.arrow.maxBytesPerBatch`).
        idle_us: records are sent on when no other has come for so many microseconds.
        linger_us: records are sent on when the first of them has waited so long.
    """
    padded = df.withColumn(_PAD, F.lit(None).cast("binary"))
    spark = df.sparkSession
    encoder = spark._jvm.org.apache.spark.sql.Encoders.row(padded._jdf.schema().asNullable())  # type: ignore[union-attr]
    flush = _new(spark, len(padded.columns), full_bytes, idle_us, linger_us)
    return DataFrame(padded._jdf.mapPartitions(flush, encoder), spark)


def _new(spark: SparkSession, *arguments: int) -> Any:
    """Returns an object of the class, which is compiled once in a session."""
    gateway: Any = spark.sparkContext._gateway
    application = spark.sparkContext.applicationId
    if application not in _loaders:
        _loaders.clear()
        _loaders[application] = _compiled(spark, gateway)
    given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return _loaders[application].loadClass(_CLASS).getConstructors()[0].newInstance(given)


def _compiled(spark: SparkSession, gateway: Any) -> Any:
    """Compiles the class, hands it to the tasks as a jar, and returns a class loader that has it."""
    jvm = gateway.jvm
    parent = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.setTargetVersion(_JAVA_VERSION)
    compiler.cook(_SOURCE.name, _SOURCE.read_text())
    classes = compiler.getBytecodes()
    folder = Path(tempfile.mkdtemp(dir=spark.sparkContext._temp_dir))
    with zipfile.ZipFile(jar := folder / "rescale-flush.jar", "w") as out:
        for name in classes.keySet().toArray():
            out.writestr(f"{name.replace('.', '/')}.class", bytes(classes.get(name)))
    spark.sparkContext._jsc.sc().addJar(str(jar))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    return jvm.java.net.URLClassLoader(urls, parent)
