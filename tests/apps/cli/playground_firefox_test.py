"""The playground in Firefox: all that playground_test.py does in Chromium."""
import unittest

import firefox
import playground_test
import program

MISSING = firefox.MISSING or playground_test.MISSING


@unittest.skipIf(MISSING, MISSING)
class FirefoxPlaygroundTest(playground_test.PlaygroundTest):
    start_browser = firefox.Firefox


if __name__ == "__main__":
    program.main()
