"""A job of two processes, killed at random times and restarted by penstock launch, gives the bits of
an undisturbed run.

PENSTOCK_KILLS is the number of kills (default 10), PENSTOCK_SEED the seed of their times.
"""
import os
import random
import shutil
import time

import jobs
import program

OPTIONS = ("ranks=2", "steps=60", "every=1")


class RestartsTest(jobs.JobTest):
    def begin_launch(self):
        return self.begin_job([program.PROGRAM, "launch", "--restarts", "1000", "--",
                               *self.mpirun_words(2, *self.words("a", *OPTIONS, "resume=auto"))])

    def kill_some(self, victim):
        """Kills one rank, mpirun, or all processes. Returns whether there was one."""
        ranks = self.ranks()
        mpirun = self.processes("mpirun")
        pids = {"mpirun": mpirun, "job": [*mpirun, *ranks.values()]}.get(victim)
        if pids is None:
            pids = [ranks[victim]] if victim in ranks else []
        for pid in pids:
            jobs.kill(pid)
        return bool(pids)

    def kill_at_random(self, launch, moments, duration, most):
        """Kills processes until the job ends, at most so often. Returns the number of kills."""
        kills = 0
        while kills < most and launch.poll() is None:
            longest = duration
            if moments.random() < 0.6:  # otherwise many runs would be killed before their first step
                longest = duration / 4
                before = self.metrics_size("a")
                while launch.poll() is None and self.metrics_size("a") in (0, before):
                    time.sleep(0.01)
            time.sleep(moments.uniform(0, longest))
            kills += self.kill_some(moments.choice((0, 1, "mpirun", "job")))
        return kills

    def test_random_kills(self):
        moments = random.Random(int(os.environ.get("PENSTOCK_SEED", "1")))
        begin = time.monotonic()
        whole = self.mpirun(2, *self.words("whole", *OPTIONS))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        duration = time.monotonic() - begin
        left = int(os.environ.get("PENSTOCK_KILLS", "10"))
        while left > 0:
            ended = False
            while not ended:
                launch = self.begin_launch()
                left -= self.kill_at_random(launch, moments, duration, left)
                result = self.finish(launch)
                print(result.stderr)
                ended = result.returncode == 0
                # Two runs in a row may have been killed before a new step.
                self.assertTrue(ended or "without a new step" in result.stderr, result.stderr)
            self.assertEqual(self.results("a"), self.results("whole"))
            shutil.rmtree(self.folder / "runs" / "a")


if __name__ == "__main__":
    program.main()
