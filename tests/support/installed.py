"""Tests of what not every environment has. Asking for a package does not import it: PyTorch takes
seconds, and each process that runs tests collects all of them."""

import importlib.util

import pytest


def needs(package: str) -> pytest.MarkDecorator:
    """Skip the tests so marked where ``package`` is not installed."""
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")
