"""Shared by the tests of the lease machine."""

import pytest
from lease_world import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the scenarios' present output into their files instead of comparing it",
    )


@pytest.fixture
def world() -> World:
    return World()
