"""tools/check-names and tools/check-folders. The tests of check-names are skipped without ctags."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def faults(self, tool):
        run = subprocess.run([TOOLS / tool, self.root], text=True, capture_output=True)
        self.assertEqual(run.returncode, 1 if run.stderr else 0, run.stderr)
        return run.stderr.splitlines()


@unittest.skipUnless(shutil.which("ctags"), "apt-get install universal-ctags")
class NamesTest(CheckTest):
    def test_one_enum_in_two_headers(self):
        self.write("src/a/a.h", "namespace penstock {\nenum class Kind { kA };\n}\n")
        self.write("src/b/b.h", "namespace penstock {\nenum class Kind { kB };\n}\n")
        (fault,) = self.faults("check-names")
        self.assertIn("penstock::Kind: src/a/a.h:2, src/b/b.h:2", fault)

    def test_one_inline_function_in_a_header_and_a_source(self):
        self.write("src/a/a.h", "namespace penstock {\ninline bool Is(const int& x) { return x; }\n}\n")
        self.write("src/a/b.cpp", "namespace penstock {\nbool Is(const int& other) { return other; }\n}\n")
        (fault,) = self.faults("check-names")
        self.assertIn("penstock::Is(const int &): src/a/a.h:2, src/a/b.cpp:2", fault)

    def test_file_local_names_are_unique_in_their_target(self):
        text = "namespace penstock {\nnamespace {\nint Count() { return 1; }\n}\n}\n"
        self.write("src/a/one.cpp", text)
        self.write("src/b/two.cpp", text)
        self.assertEqual(self.faults("check-names"), [])
        self.write("src/a/deep/three.cpp", text)
        (fault,) = self.faults("check-names")
        self.assertIn("penstock::Count()", fault)

    def test_only_the_command_line_names_options(self):
        text = 'namespace penstock {\nconst char* Help() { return "give --ranks"; }  // "--ranks"\n}\n'
        self.write("src/apps/cli/one.cpp", text)
        self.write("src/a/two.cpp", text.replace("--ranks\"; }", "ranks\"; }").replace("Help", "Other"))
        self.assertEqual(self.faults("check-names"), [])
        self.write("src/a/three.cpp", text.replace("Help", "Third"))
        (fault,) = self.faults("check-names")
        self.assertIn('src/a/three.cpp:2: "give --ranks"', fault)

    def test_overloads_aliases_of_one_type_and_declarations_are_fine(self):
        self.write("src/a/a.h", "namespace penstock {\nclass Later;\nint Size(int x);\n}\n")
        self.write("src/a/a.cpp", "namespace penstock {\nusing Time = double;\n"
                                  "int Size(int x) { return x; }\nint Size(char x) { return x; }\n}\n")
        self.write("src/a/b.cpp", "namespace penstock {\nusing Time = double;\nclass Later {};\n}\n")
        self.assertEqual(self.faults("check-names"), [])


class FoldersTest(CheckTest):
    def setUp(self):
        super().setUp()
        self.list_folders("wing a | the first\na | - | its files\na/deep | | more\n")

    def list_folders(self, text):
        self.write("src/folders.txt", text)
        subprocess.run([sys.executable, "-B", TOOLS / "folder_list.py", "--pages", self.root], check=True)

    def test_pages_of_wings_are_up_to_date(self):
        self.write("src/a/a.h", "")
        self.write("src/a/deep/b.h", "")
        self.assertIn("| `a/deep` | more |", (self.root / "src/a/README.md").read_text())
        self.assertEqual(self.faults("check-folders"), [])
        self.write("src/folders.txt", "wing a | the first\na | - | its files\na/deep | | less\n")
        (fault,) = self.faults("check-folders")
        self.assertIn("src/a/README.md is out of date", fault)

    def test_a_cycle_of_a_folder_and_its_subfolder(self):
        self.write("src/a/a.h", '#include "a/deep/b.h"\n')
        self.write("src/a/deep/b.h", "")
        self.assertEqual(self.faults("check-folders"), [])
        self.write("src/a/deep/c.cpp", '#include "a/a.h"\n')
        (fault,) = self.faults("check-folders")
        self.assertIn("a -> a/deep (src/a/a.h), a/deep -> a (src/a/deep/c.cpp)", fault)

    def test_a_folder_with_too_many_files(self):
        (self.root / "src/a/deep").mkdir(parents=True)
        for number in range(31):
            self.write(f"src/a/{number}.h", "")
        (fault,) = self.faults("check-folders")
        self.assertIn("src/a holds 31 files", fault)

    def test_what_no_line_allows_is_refused(self):
        listed = "# folders\n\nwing a | first\na | - | a\na/deep | | b\nwing two | second\nb | a/deep | c\nb/own | a | d\n"
        self.list_folders(listed)
        self.write("src/a/a.h", '#include "a/deep/b.h"\n')
        self.write("src/a/deep/b.h", "")
        self.write("src/two/b/b.h", '#include "a/deep/b.h"\n')
        self.write("src/two/b/own/c.h", '#include "a/a.h"\n#include "b/b.h"\n')
        self.assertEqual(self.faults("check-folders"), [])
        for path, text, part in (
                ("src/two/b/d.h", '#include "a/a.h"\n', "src/two/b/d.h includes a, which src/folders.txt does not allow for b"),
                ("src/a/d.h", '#include "b/b.h"\n', "src/a/d.h includes b, which src/folders.txt does not allow for a"),
                ("src/a/d.h", '#include "b/b.h"\n', "src/a/d.h includes b of the wing two, which is below its own, a"),
                ("src/new/d.h", "", "src/folders.txt has no line for new"),
                ("src/folders.txt", listed.replace("a | - |", "a | b |"), "a: no file there includes b"),
                ("src/folders.txt", listed + "c | - | e\n", "c: there is no src/two/c; remove it")):
            with self.subTest(part):
                before = (self.root / path).read_text() if (self.root / path).exists() else None
                self.write(path, text)
                self.assertIn(part, " ".join(self.faults("check-folders")))
                (self.root / path).unlink()
                if before is not None:
                    self.write(path, before)

    def test_imports_of_the_python_package(self):
        files = {"src/a/a.h": "", "src/a/deep/b.h": "", "python/penstock/__init__.py": "from penstock.b import x\n",
                 "python/penstock/a.py": "from penstock import _core\n", "python/penstock/b.py": "import penstock.a\n",
                 "python/penstock/torch/__init__.py": "", "python/penstock/torch/c/d.py": "from penstock import a, b\n",
                 "python/penstock/torch/c/e.py": "from penstock.torch.c.d import x\nif TYPE_CHECKING:\n    from penstock.torch import f\n",
                 "python/penstock/torch/f.py": "def g():\n    return 1\n\ndef __getattr__(name):\n    from penstock.torch.c import e\n",
                 "python/folders.txt": "a | | x\nb | a | x\npenstock | b | x\ntorch | | x\ntorch/c | a b | x\ntorch/f | torch/c | x\n"}
        for path, text in files.items():
            self.write(path, text)
        self.assertEqual(self.faults("check-folders"), [])
        for path, text, part in (
                ("a.py", "from penstock.b import x\n", "modules import each other: a -> b (python/penstock/a.py:1), b -> a (python"),
                ("torch/c/d.py", "from penstock.torch.c import e\n", "modules import each other: torch/c/d -> torch/c/e"),
                ("torch/c/d.py", "from penstock.torch.f import g\n", "python/penstock/torch/c/d.py:1 imports torch/f, which python/folders.txt "),
                ("torch/f.py", "def g():\n    import penstock.a\n", "torch/f.py:2 imports a in the function g, which hides a cycle"),
                ("b.py", "", "python/folders.txt: b: nothing there imports a; remove it"),
                ("c.py", "", "python/folders.txt has no line for c"),
                ("../folders.txt", files["python/folders.txt"] + "h | | x\n", "python/folders.txt: h: nothing has this name")):
            with self.subTest(part):
                self.write(f"python/penstock/{path}", text)
                self.assertIn(part, " ".join(self.faults("check-folders")))
                before = files.get(f"python/penstock/{path}", files["python/folders.txt"])
                self.write(f"python/penstock/{path}", before)
                if path == "c.py":
                    (self.root / "python/penstock/c.py").unlink()


if __name__ == "__main__":
    unittest.main()
