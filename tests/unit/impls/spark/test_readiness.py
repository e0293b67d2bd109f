"""What Spark says when the executors' Python does not fit becomes one sentence; anything else stays as it is."""

import sys

import pytest

from impls.spark.readiness import in_words

_OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
_FAILED = "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3: "
_TOLD = {
    _FAILED + "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
    "different version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.":
        f"The executors run Python 3.12 and this program runs Python {_OWN}, and Spark needs the same minor version",
    _FAILED + "org.apache.spark.SparkException: \nError from python worker:\n  PYTHON_VERSION_MISMATCH: the executor "
    "runs Python 3.9\nPYTHONPATH was:\n  /opt/spark/python/lib/py4j-0.10.9.9-src.zip:impls.zip":
        f"The executors run Python 3.9 and this program runs Python {_OWN}, and Spark needs the same minor version",
    _FAILED + 'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n\tat '
    "java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n\tat "
    "org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:379)":
        "The executors cannot start the Python /opt/python (No such file or directory): set PYSPARK_PYTHON",
    _FAILED + "ModuleNotFoundError: No module named 'pyarrow.lib'\n":
        "The executors' Python cannot import pyarrow: install requirements-run.lock there",
    _FAILED + "ModuleNotFoundError: No module named 'billing.rules'\n":
        "The executors cannot import the module billing: name its file in py_files of impls.stream.",
}  # fmt: skip


@pytest.mark.parametrize("error", _TOLD, ids=range(len(_TOLD)))
def test_it_is_one_sentence_that_says_what_to_do(error):
    told = in_words(error)
    assert told.startswith(_TOLD[error])
    assert told.endswith(".")
    assert "\n" not in told


@pytest.mark.parametrize(
    "error",
    [
        "",
        "java.lang.OutOfMemoryError: Java heap space",
        "ValueError: no module",
        'java.io.IOException: Cannot run program "chmod": error=2, No such file or directory',
    ],
)
def test_another_error_is_not_taken_for_one_of_these(error):
    assert in_words(error) == ""
