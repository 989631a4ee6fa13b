"""cuda_plugin_test.py LIBRARY PYTHON: a PyTorch for CUDA loads the plugin, with every symbol, also where there is no GPU."""
import ctypes
import os
import sys

library, python = sys.argv[1:3]
if python != "here":
    if not os.path.exists(python):
        sys.exit(f"needs {python}, which ./test installs")
    os.execv(python, [python, "-B", __file__, library, "here"])

import torch  # noqa: E402

if not torch.version.cuda:
    sys.exit(f"needs a PyTorch for CUDA, but {torch.__version__} is none")
if b"ProcessGroupNCCL" not in open(library, "rb").read():
    sys.exit("the plugin has no NCCL: run cmake again, which finds the nccl.h of that PyTorch, and build it")
function = ctypes.CDLL(library, os.RTLD_NOW).penstock_device_plugin_cuda
function.restype = ctypes.c_void_p
sys.exit(0 if function() else "the plugin is null")
