"""A headless Chromium that a test drives as a user would: real pointer, wheel and keys."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = "chromium-headless-shell"
SILENCE = 60
MISSING = None if shutil.which(PROGRAM) else f"needs {PROGRAM} (apt-get install {PROGRAM})"


class Browser:
    """Speaks the DevTools protocol over a pair of pipes: messages of JSON that end with a zero byte."""

    def __init__(self):
        # Chromium's processes may still write to it when the first one has ended.
        self._profile = tempfile.TemporaryDirectory(prefix="penstock-browser-", ignore_cleanup_errors=True)
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def connect():  # Chromium reads from 3 and writes to 4. Either may be one of the pipes' ends.
            os.dup2(to_browser, 30)
            os.dup2(from_browser, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        self._process = subprocess.Popen(
            [PROGRAM, "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._buffer, self._session = 0, b"", None
        self.console = []  # what pages wrote to the console, and uncaught errors
        self._loaded = 0
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(domain + ".enable")

    @property
    def pid(self):
        return self._process.pid

    def clear_console(self):
        self.console.clear()

    def close(self):
        os.close(self._to)
        self._process.terminate()
        self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def _read(self):
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], SILENCE)[0]:
                raise TimeoutError(f"the browser has not answered for {SILENCE} s")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise ConnectionError("the browser has ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(str([value.get("value") for value in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif method == "Page.loadEventFired":
            self._loaded += 1

    def _call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") != self._number:
                self._note(answer)
            elif "error" in answer:
                raise ValueError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url, width=1400, height=1000):
        """Loads a page in a window of this size, and waits until it is drawn."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for address in ("about:blank", str(url)):  # the first, so that the second is loaded even if only its hash differs
            loaded = self._loaded
            if "loaderId" not in self._call("Page.navigate", url=address):
                continue
            while self._loaded == loaded:
                self._note(self._read())
        self.settle()

    def settle(self):
        """Waits until what was asked for is drawn."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def evaluate(self, script):
        result = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                            userGesture=True)
        if "exceptionDetails" in result:
            raise ValueError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def _pointer(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x, y):
        self._pointer("mouseMoved", x, y)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self._pointer(kind, x, y, button="left", clickCount=1)
        self.settle()

    def drag(self, x0, y0, x1, y1):
        self._pointer("mousePressed", x0, y0, button="left", clickCount=1)
        for share in (0.3, 0.7, 1):
            self._pointer("mouseMoved", x0 + share * (x1 - x0), y0 + share * (y1 - y0), button="left", buttons=1)
        self._pointer("mouseReleased", x1, y1, button="left", clickCount=1)
        self.settle()

    def touch(self, x0, y0, x1, y1):
        """Drags by a finger."""
        self._call("Emulation.setTouchEmulationEnabled", enabled=True)
        self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x0, "y": y0}])
        for share in (0.3, 0.7, 1):
            point = {"x": x0 + share * (x1 - x0), "y": y0 + share * (y1 - y0)}
            self._call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[point])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self._call("Emulation.setTouchEmulationEnabled", enabled=False)
        self.settle()

    def wheel(self, x, y, by):
        self._pointer("mouseWheel", x, y, deltaX=0, deltaY=by)
        self.settle()

    def key(self, key, shift=False):
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Escape": 27, "Enter": 13}
        text = {} if key in codes else {"text": key}
        code = codes.get(key, ord(key[0]))
        modifiers = 8 if shift else 0
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        self.settle()

    def center(self, selector):
        """The position of an element, which is scrolled into view."""
        return self.evaluate(f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")

    def press(self, selector):
        """Clicks an element. Clicks again if the layout changed under the pointer."""
        end = time.monotonic() + SILENCE
        while time.monotonic() < end:
            # Its box counts: what is drawn above it may get the event.
            self.evaluate(f"""(() => {{ window.pressed = false; const e = document.querySelector({json.dumps(selector)});
                document.addEventListener('click', ({{clientX: x, clientY: y}}) => {{
                    const b = e.getBoundingClientRect();
                    window.pressed = x >= b.left - 1 && x <= b.right + 1 && y >= b.top - 1 && y <= b.bottom + 1;
                }}, {{capture: true, once: true}}); }})()""")
            self.click(*self.center(selector))
            if self.evaluate("window.pressed"):
                return
        raise TimeoutError(f"{selector} cannot be clicked")

    def theme(self, name):
        """light or dark"""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def allow_clipboard(self):
        session, self._session = self._session, None
        self._call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self._session = session

    def screenshot(self, path):
        """Takes a picture of the whole page."""
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        picture = self._call("Page.captureScreenshot", captureBeyondViewport=True,
                             clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self):
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])
