"""What holds for every test."""

from hypothesis import settings

# The same examples in every run: a failure is one of the code, on every machine.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
