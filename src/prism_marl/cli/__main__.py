"""``python -m prism_marl.cli``."""

import sys

from prism_marl.cli import main

sys.exit(main())
