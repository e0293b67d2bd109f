"""The one line that says why a query failed, from texts as Spark gives them."""

import pytest

from impls.errors import FOR_KEY
from impls.spark.cause import cause_of

WORKER = """Traceback (most recent call last):
  File "/site-packages/pyspark/worker.py", line 2000, in main
    process()
  File "/lib/impls/processor/program.py", line 131, in records
    self.output.take(given)
  File "/home/me/rules.py", line 12, in handleInputRows
    self.check(row)
  File "/usr/lib/python3.11/decimal.py", line 3, in quantize
    raise InvalidOperation
{}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:"""
JOB = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy. \
Return Message: Traceback (most recent call last):
  File "/site-packages/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
py4j.protocol.Py4JJavaError: An error occurred while calling o99.collectToPython.
: org.apache.spark.SparkException: Job aborted: org.apache.spark.api.python.PythonException: """
AT = ", at rules.py:12 in handleInputRows: self.check(row)"


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("AssertionError", "AssertionError"),
        ("AssertionError: no total\nof two lines", "AssertionError: no total of two lines"),
        ("decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]", None),
        (f"KeyError: 'x'\nhandleInputRows of Rules{FOR_KEY}Row(k='a') in bin 3.", None),
    ],
)
def test_an_exception_of_the_users_code_is_told_with_its_line(raised, told):
    assert cause_of(JOB + WORKER.format(raised)) == f"The query failed: {told or raised.replace(chr(10), ' ')}{AT}"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/usr/lib/python3.11/site-packages/shop/rules.py", AT),
        ("/usr/local/lib/python3.12/dist-packages/shop/rules.py", AT),
        ("/opt/python3.11/app/rules.py", AT),
        ("/usr/lib/python3.11/contextlib.py", ""),  # through which our own code has raised it
        ("/usr/lib/python3.11/site-packages/pyspark/sql/rules.py", ""),
    ],
)
def test_a_line_is_told_of_an_installed_package_and_of_no_library_of_pythons(path, told):
    raised = WORKER.replace("/home/me/rules.py", path).format("impls.errors.StateError: The file is cut off.")
    assert cause_of(JOB + raised) == f"The query failed: The file is cut off.{told}"


NOTE = f"handleInputRows of Rules{FOR_KEY}Row(k='a') in bin 3."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("first\n\nlast", "first last"),
        ("first\n\n  \nlast", "first last"),
        ("answer:\n=== body ===\nat noon\nCaused by: rain", "answer: === body === at noon Caused by: rain"),
        ("their trace\n\tat a.b.C.d(C.java:1)\nlast", "their trace"),
    ],
)
def test_the_note_of_the_key_is_there_whatever_lines_an_exceptions_text_has(text, shown):
    raised = f"ValueError: {text}\n{NOTE}"
    assert cause_of(JOB + WORKER.format(raised)) == f"The query failed: ValueError: {shown} {NOTE}{AT}"


def test_a_file_that_the_worker_cannot_read_is_named_without_its_code():
    text = WORKER.replace("    self.check(row)\n", "").replace(
        '  File "/usr/lib/python3.11/decimal.py", line 3, in quantize\n', ""
    )
    assert cause_of(text.replace("    raise InvalidOperation\n", "").format("ValueError")).endswith(
        "ValueError, at rules.py:12 in handleInputRows"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no message"),
        ("one\njava.lang.IllegalStateException: gone\n\tat x.y(z)", "java.lang.IllegalStateException: gone"),
        ("nothing that is known", "nothing that is known"),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: no such limit\n=== Streaming Query ===\n+- Scan",
            "no such limit",
        ),
    ],
)
def test_without_a_traceback_the_line_that_names_an_exception_is_told(text, told):
    assert cause_of(text) == f"The query failed: {told}"
