"""Fits and made-up results, as the tests of the model have them."""

from plugins.htfbr.conftest import ethene, fit, hono

__all__ = ["ethene", "fit", "hono"]
