"""Where the three packages are, for tests that look at their files or start processes of their own."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("src/phasor", "packages/phasor-lab/src/phasor_lab", "packages/phasor-serve/src/phasor_serve")
PYTHONPATH = os.pathsep.join(str((ROOT / package).parent) for package in PACKAGES)
