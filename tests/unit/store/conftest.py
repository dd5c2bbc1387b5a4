"""Servers and stores for the tests of this folder."""

from tests.sessionstores import servers as servers
