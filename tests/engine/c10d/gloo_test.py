"""gloo_test.py LIBRARY PYTHON [FILTER]: the suites of transports and collectives over gloo, in one process of a Python with torch."""
import ctypes
import datetime
import os
import sys
import threading

if __name__ == "__main__" and sys.argv[2] != "here":
    if not os.path.exists(sys.argv[2]):
        sys.exit(f"needs {sys.argv[2]}, which ./test installs")
    os.execv(sys.argv[2], [sys.argv[2], "-B", __file__, sys.argv[1], "here", *sys.argv[3:]])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

TIMEOUT = datetime.timedelta(seconds=120)
kept = []  # groups of one test, until the next test's


def end_of(store, rank):
    group = dist.ProcessGroup(store, rank, 2)
    backend = dist.ProcessGroupGloo(store, rank, 2, TIMEOUT)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return group


def make_groups(processes, numbers=iter(range(1 << 30))):
    """Registers both ends of each edge between processes that this one emulates. Returns their number."""
    number = next(numbers)
    for name, _ in kept:
        dist.distributed_c10d._unregister_process_group(name)
    kept.clear()

    def make(from_, to, store, end):
        rank = int((from_ > to) == (end == "sender"))
        name = f"{number}/{from_}/{to}/{end}"
        group = end_of(store, rank)
        dist.distributed_c10d._register_process_group(name, group)
        kept.append((name, group))  # the registry does not own it

    threads = []
    for from_ in range(processes):
        for to in range(processes):
            if from_ != to:
                store = dist.HashStore()
                threads += [threading.Thread(target=make, args=(from_, to, store, end)) for end in ("sender", "receiver")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return number


def main(library, _, names="*"):
    suite = ctypes.CDLL(library)
    suite.penstock_run_suite.argtypes = [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int), ctypes.c_char_p]
    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(make_groups)
    return suite.penstock_run_suite(callback, names.encode())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
