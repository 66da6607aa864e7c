"""The report: one page of all experiments that needs neither a network nor other files."""
