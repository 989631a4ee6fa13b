"""Values of the options of all commands: numbers in other forms, numbers out of bounds and empty texts are refused with one line that names the option."""
import re
import signal
import threading

import program

NOT_WHOLE = ("1e20", "-1", "nan", "1x", "0x10", "1.5", "99999999999999999999", " 1", "+1", "")
NOT_NUMBERS = ("nan", "1e400", "inf", "-inf", "1x", "0x10", "1,5", "+-1", "")
ENGINE = ("train", "generate", "eval", "graph", "compile", "profile", "export")  # each call starts libtorch
# Options whose value may be empty.
MAY_BE_EMPTY = {"--prompt", "--document-separator"}
# What commands need before they look at the bounds of a value.
GIVEN = {**dict.fromkeys(("schedule", "validate", "simulate", "show"), ("1f1b",)), "report": ("1f1b", "-o", "r.html"), "diff": ("1f1b", "gpipe"),
         "train": ("c.yaml",), "calibrate": ("runs.csv",)}
# These name the key of the configuration, or the column of the row.
NAME_KEYS = ("train", "calibrate")
# An option in the help, with its value: "  -o, --output FILE   ...".
OPTION = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?:, -[\w-]+)*[ =]([A-Z][^ ]*)", re.MULTILINE)


class ValuesTest(program.CommandTest):
    def commands(self):
        return re.findall(r"^  ([\w-]+)  ", self.run_ok("--help"), re.MULTILINE)

    def test_every_number_and_every_empty_value(self):
        seen = set()
        self.write("c.yaml", "steps: 1\n")
        self.write("runs.csv", "model,nodes,device,step_time\ngpt2,1x1,a100,1\n")
        for command in self.commands():
            if command in ("help", "version", "completion", "man"):
                continue
            for option, value in OPTION.findall(self.start(command, "--help").stdout):
                wrong = {"N": NOT_WHOLE, "X": NOT_NUMBERS}.get(value, ("",))
                if command in ENGINE:
                    wrong = wrong[:2] + wrong[-1:]
                for text in wrong:
                    if not text and option in MAY_BE_EMPTY:
                        continue
                    words = (f"{option}={text}",) if text else (option, "")
                    line = self.refuse(command, *(GIVEN.get(command, ()) if text == "-1" else ()), *words)
                    if command in NAME_KEYS and option not in line:
                        self.assertIn(option.strip("-"), re.sub("[_.]", "-", line), (command, text))
                    else:
                        self.assertIn(option, line, (command, text))
                seen.add((command, value))
        self.assertGreater(len(seen), 20, seen)


class SignalsTest(program.CommandTest):
    def test_a_stopped_tokenize_removes_what_it_wrote(self):
        self.write("text", "some words\n" * 200_000)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.begin("tokenize", *["text"] * 400, "--tokenizer", "bytes", "-o", "out") as process:
                temporary = f"out.tmp-{process.pid}"
                reader = threading.Thread(target=process.stderr.read)  # an unread pipe would fill
                reader.start()
                self.wait_for(process, f"{temporary}/tokens-0.bin")
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=60), 128 + number)
                reader.join()
            self.assertEqual(self.files(), ["text"])


if __name__ == "__main__":
    program.main()
