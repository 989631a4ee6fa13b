"""tools/docs-site: folders without the package that it needs."""
import pathlib
import subprocess
import tempfile
import unittest

DOCS_SITE = pathlib.Path(__file__).resolve().parents[2] / "tools" / "docs-site"


class DocsSiteTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refusal(self):
        run = subprocess.run([DOCS_SITE, self.folder], text=True, capture_output=True)
        self.assertEqual((run.returncode, run.stdout), (1, ""), run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        self.assertIn("'pip install torch' and", run.stderr)  # the hint names all that is needed
        return run.stderr

    def test_folders_without_the_package_are_refused(self):
        self.assertIn("has no Python package penstock", self.refusal())

    def test_packages_without_torch_are_refused(self):
        package = self.folder / "penstock"
        (package / "torch").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "torch" / "__init__.py").write_text("import torch_that_is_not_installed\n")
        self.assertIn("(ModuleNotFoundError: No module named 'torch_that_is_not_installed')", self.refusal())


if __name__ == "__main__":
    unittest.main()
