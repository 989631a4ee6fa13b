"""Executes the notebooks of examples/notebooks. Run by unittest with penstock, nbclient and ipykernel installed."""

import importlib.util
import pathlib
import tempfile
import unittest

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parents[3] / "examples/notebooks"


def execute(name: str) -> nbformat.NotebookNode:
    """Returns the notebook with outputs. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    return notebook


def text_of(notebook: nbformat.NotebookNode) -> str:
    """Returns what the cells print."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


class NotebookTest(unittest.TestCase):
    def test_choose_a_schedule(self):
        text = text_of(execute("choose_a_schedule"))
        self.assertRegex(text, r"zbv +99\.5 +3\.5% +0\.0% +8 +896")
        self.assertRegex(text, r"rank 1, position 0, 1B0: \w+")

    def test_explain_your_bubbles(self):
        text = text_of(execute("explain_your_bubbles"))
        self.assertIn("rank 2 determines the step", text)

    @unittest.skipUnless(importlib.util.find_spec("penstock.torch"), "penstock is installed without its engine")
    def test_train_your_model(self):
        text = text_of(execute("train_your_model"))
        self.assertRegex(text, r"step  59: loss 0\.")
        self.assertRegex(text, r"largest difference of the losses: (0\.0e\+00|\d\.\de-0[789])")

    def test_notebooks_are_committed_without_outputs(self):
        for path in sorted(FOLDER.glob("*.ipynb")):
            cells = nbformat.read(path, as_version=4).cells
            with self.subTest(path.name):
                self.assertEqual([cell.outputs for cell in cells if cell.cell_type == "code" and cell.outputs], [])


if __name__ == "__main__":
    unittest.main()
