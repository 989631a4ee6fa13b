"""Prints parts of the JSON on stdin, one line for each PATH: pick.py PATH...

A path is keys with dots between them, within `schedules` unless its first key is one of the whole. A key of a list stands for
that key of all elements, and a number for one element; `?` is the keys of an object, `#` the length of a list.
"""
import json
import sys


def part(data, key):
    if isinstance(data, list):
        if key == "#":
            return len(data)
        return data[int(key)] if key.lstrip("-").isdigit() else [part(each, key) for each in data]
    return " ".join(data) if key == "?" else data.get(key) if isinstance(data, dict) else None


def rounded(data):
    """Returns the data with 6 digits of what is no whole number."""
    if isinstance(data, float):
        data = data if data.is_integer() else float(f"{data:.6g}")
        return int(data) if data.is_integer() and abs(data) < 1e15 else data
    if isinstance(data, list):
        return [rounded(each) for each in data]
    return {key: rounded(each) for key, each in data.items()} if isinstance(data, dict) else data


text = sys.stdin.read()
whole = json.loads(text) if text else sys.exit(1)
for path in sys.argv[1:]:
    first = path.partition(".")[0]
    found = whole["schedules"] if "schedules" in whole and first not in whole and first != "?" else whole
    for name in path.split("."):
        found = part(found, name)
    print(path, found if isinstance(found, str) else json.dumps(rounded(found), ensure_ascii=False))
