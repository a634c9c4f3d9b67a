"""`timing` is imported from benchmarks/, which is no package."""

import sys

from blocks import ROOT

sys.path.append(str(ROOT / "benchmarks"))
