"""What `./inv simulate` runs."""

import sys
from pathlib import Path

for folder in Path(__file__).resolve().parents[:3]:
    sys.path.insert(0, str(folder))

if __name__ == "__main__":
    from chaos.cli import main

    sys.exit(main())
