"""Thousands of restarts and gaps: what the log would say about each is not wanted here."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def _quiet():
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
