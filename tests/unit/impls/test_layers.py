"""The layers of impls: what lies below Spark does not load it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("protocol", "store", "placement", "operators", "durability", "transfer", "worker", "driver", "controltopic")
SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
found = sorted({name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j"})
print(",".join(found))
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_below_spark_loads_it(package):
    files = sorted((ROOT / "impls" / package).rglob("*.py"))
    assert files, f"impls/{package} has no module"
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "", f"impls/{package} loads {done.stdout.strip()}"


def test_what_loads_spark_is_found_by_the_same_script():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "impls.spark.step"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert "pyspark" in done.stdout
