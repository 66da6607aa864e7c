"""From raw files to `data.h5`: reading, checking, converting, splitting, reference energies.

Frames pass through one by one; of each only a few numbers are kept until the end, so that a dataset
may be larger than memory. Nothing is written under a final name before everything is checked.
"""
