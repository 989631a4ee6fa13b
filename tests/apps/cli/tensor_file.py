"""Reads and writes safetensors files of fp32 values, with the standard library only."""
import array
import json
import math


def read(path):
    """Returns {name: (shape, values)}, with the values of F32 tensors as an array."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = entry["shape"], array.array("f", content[start + begin:start + end])
    return tensors


def write(path, tensors):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        assert len(values) == math.prod(shape), name
        begin = len(body)
        body += array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def change(path, change_tensors):
    """Rewrites a file after `change_tensors` has changed the dictionary of its tensors."""
    tensors = read(path)
    change_tensors(tensors)
    write(path, tensors)
