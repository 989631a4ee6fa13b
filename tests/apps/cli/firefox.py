"""A headless Firefox, driven as browser.Browser is."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

import browser

PROGRAM = "firefox-esr"
MISSING = None if shutil.which(PROGRAM) else f"needs {PROGRAM} (apt-get install {PROGRAM})"
PREFERENCES = {"marionette.port": 0, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False}
KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015", "Escape": "\ue00c", "Enter": "\ue007"}
SHIFT = "\ue008"
KINDS = {"mousePressed": "pointerDown", "mouseReleased": "pointerUp"}
MESSAGES = """return Services.console.getMessageArray().filter((each) => each instanceof Ci.nsIScriptError &&
              each.sourceName.startsWith('file:')).map((each) => each.message);"""


class Firefox(browser.Browser):
    """Speaks the Marionette protocol over a socket: a length, a colon and JSON."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="penstock-firefox-", ignore_cleanup_errors=True)
        folder = pathlib.Path(self._profile.name)
        (folder / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
                                                for name, value in PREFERENCES.items()))
        self._process = subprocess.Popen([PROGRAM, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", folder],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._socket = socket.create_connection(("127.0.0.1", self._port(folder / "MarionetteActivePort")), browser.SILENCE)
        self._stream, self._number = self._socket.makefile("rwb"), 0
        self._read()  # what it says of itself
        self._call("WebDriver:NewSession", capabilities={"alwaysMatch": {"acceptInsecureCerts": True}})

    def _port(self, file):
        end = time.monotonic() + browser.SILENCE
        while not (file.exists() and file.read_text().strip()):
            if self._process.poll() is not None or time.monotonic() > end:
                raise ConnectionError(f"{PROGRAM} does not start")
            time.sleep(0.05)
        return int(file.read_text())

    def close(self):
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        self._profile.cleanup()

    def _read(self):
        length = b""
        while not length.endswith(b":"):
            length += self._stream.read(1)
        return json.loads(self._stream.read(int(length[:-1])))

    def _call(self, method, **params):
        self._number += 1
        message = json.dumps([0, self._number, method, params]).encode()
        self._stream.write(b"%d:%s" % (len(message), message))
        self._stream.flush()
        _, number, error, result = self._read()
        assert number == self._number
        if error:
            raise ValueError(f"{method}: {error['message']}")
        return result

    @property
    def console(self):
        """What pages caused to be written to the console."""
        self._call("Marionette:SetContext", value="chrome")
        found = self._call("WebDriver:ExecuteScript", script=MESSAGES, args=[])["value"]
        self._call("Marionette:SetContext", value="content")
        return found

    def clear_console(self):
        self._call("Marionette:SetContext", value="chrome")
        self._call("WebDriver:ExecuteScript", script="Services.console.reset();", args=[])
        self._call("Marionette:SetContext", value="content")

    def open(self, url, width=1400, height=1000):
        self._call("WebDriver:SetWindowRect", width=width, height=height)
        for address in ("about:blank", str(url)):
            self._call("WebDriver:Navigate", url=address)
        self.settle()

    def evaluate(self, script):
        return self._call("WebDriver:ExecuteScript", script=f"return {script};", args=[], sandbox=None)["value"]

    def _act(self, kind, actions, **parameters):
        device = {"type": kind, "id": kind + str(parameters), "actions": actions}
        self._call("WebDriver:PerformActions", actions=[{**device, "parameters": parameters} if parameters else device])

    def _pointer(self, kind, x, y, **_):
        actions = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}]
        if kind in KINDS:
            actions.append({"type": KINDS[kind], "button": 0})
        self._act("pointer", actions, pointerType="mouse")

    def touch(self, x0, y0, x1, y1):
        path = [{"type": "pointerMove", "x": round(x0 + share * (x1 - x0)), "y": round(y0 + share * (y1 - y0)), "duration": 0}
                for share in (0, 0.3, 0.7, 1)]
        self._act("pointer", [path[0], {"type": "pointerDown", "button": 0}, *path[1:], {"type": "pointerUp", "button": 0}],
                  pointerType="touch")
        self.settle()

    def key(self, key, shift=False):
        keys = [SHIFT] * shift + [KEYS.get(key, key)]
        self._act("key", [{"type": "keyDown", "value": each} for each in keys] +
                  [{"type": "keyUp", "value": each} for each in reversed(keys)])
        self.settle()
