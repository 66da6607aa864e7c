"""`python -m pipeline_core.cli`, for launchers that start Python modules."""

from pipeline_core.cli import main

main()
