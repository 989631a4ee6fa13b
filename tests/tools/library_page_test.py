"""The headers in the tables of docs/library.md are the installed ones."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/site"))
import headers  # noqa: E402  from a folder of the path above


def headers_of_page():
    """Returns the headers that the tables list; a name without folders is in the folder of the header before it."""
    found = []
    for cells in re.findall(r"^\| (`<penstock/[^|]*) \|", (ROOT / "docs/library.md").read_text(), re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cells):
            if name.startswith("<penstock/"):
                name = name.removeprefix("<penstock/").removesuffix(">")
                folder = name.rpartition("/")[0]
            else:
                name = f"{folder}/{name}"
            found.append(name)
    return found


class LibraryPageTest(unittest.TestCase):
    def test_the_page_lists_the_installed_headers(self):
        self.assertEqual(sorted(headers_of_page()), sorted(headers.public_headers(ROOT)))


if __name__ == "__main__":
    unittest.main()
