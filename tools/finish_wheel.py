"""finish_wheel.py WHEEL -o FOLDER [--torch VERSION]: makes a wheel independent of this machine, and prints the path of the result.

auditwheel adds the libraries that it needs, but torch's. With torch, the version of the wheel names torch's minor version, the wheel
requires it, and its programs and modules find torch's libraries beside the package.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

#: Libraries of an installed torch.
OF_TORCH = ("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so", "libc10.so", "libc10_cuda.so")


def run(*command):
    subprocess.run(command, check=True, stdout=sys.stderr)


def only(folder, pattern):
    found, = pathlib.Path(folder).glob(pattern)
    return found


def find_torch(unpacked):
    """Lets binaries look for torch's libraries in torch/lib, from where they are in site-packages."""
    for binary in unpacked.rglob("*"):
        if not binary.is_file() or binary.open("rb").read(4) != b"\x7fELF" or "penstock.libs" in binary.parts:
            continue
        up = "../" * (len(binary.relative_to(unpacked).parts) - 1)
        if ".data" in str(binary.relative_to(unpacked)):  # the second copy of a plugin, which installed programs do not read
            binary.unlink()
            continue
        run("patchelf", "--set-rpath", f"$ORIGIN/{up}penstock.libs:$ORIGIN/{up}torch/lib", str(binary))


def require_torch(unpacked, version):
    """Names torch's minor version in the version of the wheel. Returns the folder, which has the version in its name, too."""
    minor = ".".join(version.split(".")[:2])
    metadata = only(unpacked, "*.dist-info/METADATA")
    text = metadata.read_text()
    own = re.search(r"^Version: (.*)$", text, re.M)[1]
    text = re.sub(r"^Version: .*$", f"Version: {own}+torch{minor}", text, count=1, flags=re.M)
    text = text.replace("Requires-Dist: numpy", f"Requires-Dist: torch=={minor}.*\nRequires-Dist: numpy", 1)
    metadata.write_text(text)
    for folder in [each for each in unpacked.iterdir() if each.name.startswith(f"penstock-{own}.")]:
        folder.rename(folder.with_name(folder.name.replace(own, f"{own}+torch{minor}", 1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel")
    parser.add_argument("-o", dest="folder", required=True)
    parser.add_argument("--torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        repaired = f"{work}/repaired"
        run("auditwheel", "repair", options.wheel, "-w", repaired, *(word for name in OF_TORCH for word in ("--exclude", name)))
        result = only(repaired, "*.whl")
        if options.torch:
            run("wheel", "unpack", str(result), "-d", f"{work}/unpacked")
            unpacked = only(f"{work}/unpacked", "*")
            find_torch(unpacked)
            require_torch(unpacked, options.torch)
            pathlib.Path(work, "packed").mkdir()
            run("wheel", "pack", str(unpacked), "-d", f"{work}/packed")
            result = only(f"{work}/packed", "*.whl")
        pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
        final = pathlib.Path(options.folder, result.name)
        final.write_bytes(result.read_bytes())
    print(final)


main()
