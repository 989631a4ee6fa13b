"""The scripts of examples/slurm start what they say, with the variables of each process: a stand-in for srun starts the tasks here."""
import os
import pathlib
import shutil
import subprocess

import program

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples/slurm"
# Starts the tasks of a job of two nodes, one after the other, as srun does in parallel.
SRUN = """#!/bin/bash
while [[ ${1:-} == --* ]]; do shift; done
for ((i = 0; i < SLURM_NTASKS; ++i)); do
  SLURM_PROCID=$i SLURM_LOCALID=$((i % (SLURM_NTASKS / 2))) "$@" || exit
done
"""
SCONTROL = "#!/bin/sh\necho node1; echo node2\n"
# Print how they were called.
PRINT = """#!/bin/bash
echo "${0##*/} $* | ${RANK:-} ${WORLD_SIZE:-} ${LOCAL_RANK:-} ${MASTER_ADDR:-} ${PYTHONPATH:-}"
"""
RENDEZVOUS = "--rdzv-id 7 --rdzv-backend c10d --rdzv-endpoint node1:20007"


class SlurmTest(program.CommandTest):
    def setUp(self):
        super().setUp()
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        scripts = {"srun": SRUN, "scontrol": SCONTROL, "python": PRINT, "torchrun": PRINT, "penstock": PRINT}
        for name, text in scripts.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def submit(self, script, *words, tasks=2):
        """Returns the lines that the tasks print."""
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH", "MASTER_ADDR")}
        environment |= {"PATH": f"{self.programs}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": "7", "SLURM_NNODES": "2",
                        "SLURM_NTASKS": str(tasks), "SLURM_GPUS_ON_NODE": "8"}
        done = subprocess.run(["bash", FOLDER / script, *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_they_are_scripts(self):
        for path in FOLDER.glob("*.sbatch"):
            subprocess.run(["bash", "-n", path], check=True)
            if shutil.which("shellcheck"):
                subprocess.run(["shellcheck", path], check=True)

    def test_train_starts_a_process_for_each_task(self):
        self.assertEqual(self.submit("penstock_train.sbatch", "run.yaml", "ranks=2"),
                         2 * ["penstock train run.yaml ranks=2 checkpoint.every=200 resume=auto |     "])

    def test_a_pipeline_gets_the_variables_of_torchrun(self):
        self.assertEqual(self.submit("pipeline.sbatch", "train.py", "a b", tasks=4),
                         [f"python train.py a b | {i} 4 {i % 2} node1 " for i in range(4)])

    def test_torchrun_starts_on_each_node(self):
        launched = self.submit("torchrun.sbatch", "-m", "penstock.megatron", "zbv", "pretrain_gpt.py")
        self.assertEqual(launched, 2 * [f"torchrun --nnodes 2 --nproc-per-node 8 {RENDEZVOUS} -m penstock.megatron zbv pretrain_gpt.py |     "])

    def test_the_files_of_a_plan(self):
        self.run_ok("plan", "--model", "llama-3-8b", "--nodes", "2x8", "--global-batch", 32, "--for", "megatron", "--schedule", "zbv", "-p", 8,
                    "--configs", "plan")
        (line, again) = self.submit("plan.sbatch", "plan", "megatron", "pretrain_gpt.py", "--train-iters", "10")
        self.assertEqual(line, again)
        self.assertRegex(line, rf"^torchrun --nnodes 2 --nproc-per-node 8 {RENDEZVOUS} -m penstock.megatron \S+ pretrain_gpt.py "
                               r".*--pipeline-model-parallel-size 8 .*--train-iters 10 \|")
        (line, _) = self.submit("plan.sbatch", "plan", "torchtitan", "--training.steps", "10")
        self.assertEqual(line, f"torchrun --nnodes 2 --nproc-per-node 8 {RENDEZVOUS} -m torchtitan.train --module torchtitan_plan --config plan "
                               "--training.steps 10 |     plan")
        (line, _) = self.submit("plan.sbatch", "plan", "penstock", "resume=auto")
        self.assertEqual(line, "penstock train plan/train.yaml resume=auto |     ")


if __name__ == "__main__":
    program.main()
