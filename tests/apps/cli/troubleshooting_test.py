"""The messages that docs/troubleshooting.md explains are messages of the program, of the Python package or of the scripts."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def text_of_sources():
    """Returns the sources in one line, where adjacent literals are one."""
    files = [path for folder, ending in (("src", "*.cpp"), ("src", "*.h"), ("python/penstock", "*.py"), ("tools", "setup.sh"), ("cmake", "*.cmake"))
             for path in sorted((ROOT / folder).rglob(ending))]
    text = " ".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\s+", " ", re.sub(r'"\s*f?"', "", text))


class TroubleshootingTest(unittest.TestCase):
    def test_every_message_is_one_of_the_sources(self):
        page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
        messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
        self.assertGreaterEqual(len(messages), 20)
        sources = text_of_sources()
        for message in messages:
            for part in re.split(r"\s*\.\.\.[,;:)]*\s*", message):
                self.assertIn(part.strip(" (:,"), sources, message)


if __name__ == "__main__":
    unittest.main(argv=["troubleshooting_test.py"])
