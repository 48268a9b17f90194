"""``python -m durastore.cli``."""

from durastore.cli import main

main()
