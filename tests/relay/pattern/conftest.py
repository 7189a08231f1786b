"""The random graphs of the tests of passes serve here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "passes"))
