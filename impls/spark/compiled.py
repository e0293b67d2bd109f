"""Classes of this package for the JVM, made from their source by Janino, the compiler that Spark has."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_JAVA_VERSION = 8  # of the class file; Janino writes no later one
_loaders: dict[tuple[str, Path], Any] = {}


def new_object(spark: SparkSession, source: Path, *arguments: int, in_tasks: bool = False) -> Any:
    """Returns an object of the class rescale.NAME in a file NAME.java, which is compiled once in a session.

    Args:
        spark: the session.
        source: the file.
        arguments: those of the class's first constructor.
        in_tasks: whether the class runs in tasks too, which get it as a jar.

    Raises:
        Py4JError: it does not compile, as where a version of Spark has another inside.
    """
    gateway: Any = spark.sparkContext._gateway
    name = (str(spark.sparkContext.applicationId), source)
    if name not in _loaders:
        for ended in [key for key in _loaders if key[0] != name[0]]:
            del _loaders[ended]
        _loaders[name] = _compiled(spark, gateway, source, in_tasks)
    given = gateway.new_array(gateway.jvm.java.lang.Object, len(arguments))
    for place, argument in enumerate(arguments):
        given[place] = argument
    return _loaders[name].loadClass(f"rescale.{source.stem}").getConstructors()[0].newInstance(given)


def _compiled(spark: SparkSession, gateway: Any, source: Path, in_tasks: bool) -> Any:
    """Compiles a class, hands it to tasks as a jar where they run it, and returns a class loader that has it."""
    jvm = gateway.jvm
    parent = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.setTargetVersion(_JAVA_VERSION)
    compiler.cook(source.name, source.read_text())
    classes = compiler.getBytecodes()
    folder = Path(tempfile.mkdtemp(dir=spark.sparkContext._temp_dir))
    with zipfile.ZipFile(jar := folder / f"rescale-{source.stem.lower()}.jar", "w") as out:
        for name in classes.keySet().toArray():
            out.writestr(f"{name.replace('.', '/')}.class", bytes(classes.get(name)))
    if in_tasks:
        spark.sparkContext._jsc.sc().addJar(str(jar))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    return jvm.java.net.URLClassLoader(urls, parent)
