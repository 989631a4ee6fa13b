"""The examples of docs/torch-runtime.md run, one after the other, as one script on two ranks."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import penstock

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "torch-runtime.md"
SECONDS = 80


def test_examples_run(tmp_path: pathlib.Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    script = tmp_path / "train.py"
    script.write_text("\n".join([*blocks, "dist.destroy_process_group()"]))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(script)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # torchrun's ranks too
            raise
    assert process.returncode == 0, output
    assert "Et*8|t*8|t*7|t*7,L" in output
    assert (tmp_path / "run.html").stat().st_size > 1000
    for name in ("costs0.yaml", "measured.yaml"):
        penstock.Costs.load(tmp_path / name)
