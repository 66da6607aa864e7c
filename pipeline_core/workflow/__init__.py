"""Functions of the Snakefile: inputs of rules, targets, and the shell of jobs. Imports no torch."""

from pipeline_core.workflow.rules import Plan

__all__ = ["Plan"]
