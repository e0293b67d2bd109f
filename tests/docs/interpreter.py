"""Runs blocks of Python as a program would that consists of them: lines of JSON in, None or what went wrong out."""

import json
import os
import sys
import traceback
from pathlib import Path

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the blocks print is no answer
sys.path.insert(0, str(Path.cwd()))
for line in sys.stdin:
    name, text = json.loads(line)
    wrong = None
    try:
        exec(compile(text, name, "exec"), sys.modules["__main__"].__dict__)
    except BaseException:
        wrong = traceback.format_exc()
    answers.write(json.dumps(wrong) + "\n")
    answers.flush()
