# libtorch for CPUs, from the PyPI wheel: the target Torch::cpu.
#
# Torch_ROOT is the folder of the torch package (with include/ and lib/). The default is in the virtual
# environment that ./run creates under build/, or for pip the one that its interpreter imports (InstalledTorch.cmake). The wheel's own TorchConfig.cmake requires CUDA.

if(SKBUILD)
  set(torch_candidates "${installed_torch}")
else()
  file(GLOB torch_candidates "${PROJECT_SOURCE_DIR}/build/torch-venv/lib/python3*/site-packages/torch")
  if(torch_candidates)  # a link to what all clones share, so that these compile and link the same files
    file(REAL_PATH "${torch_candidates}" torch_candidates)
  endif()
endif()
# A build folder is kept, and may have been configured with another torch.
foreach(chosen ${Torch_ROOT} ${torch_candidates})
  if(Torch_INCLUDE_DIR AND NOT Torch_INCLUDE_DIR STREQUAL "${chosen}/include")
    foreach(found INCLUDE_DIR CPU_LIBRARY PYTHON_LIBRARY C10_LIBRARY CUDA_LIBRARY C10_CUDA_LIBRARY CUDA_INCLUDE_DIR NCCL_INCLUDE_DIR)
      unset(Torch_${found} CACHE)
    endforeach()
  endif()
  break()
endforeach()
find_path(Torch_INCLUDE_DIR ATen/ATen.h HINTS ${Torch_ROOT} ${torch_candidates}
          PATH_SUFFIXES include NO_DEFAULT_PATH)
get_filename_component(torch_root "${Torch_INCLUDE_DIR}" DIRECTORY)
find_library(Torch_CPU_LIBRARY torch_cpu HINTS "${torch_root}/lib" NO_DEFAULT_PATH)
find_library(Torch_PYTHON_LIBRARY torch_python HINTS "${torch_root}/lib" NO_DEFAULT_PATH)
find_library(Torch_C10_LIBRARY c10 HINTS "${torch_root}/lib" NO_DEFAULT_PATH)
set(Torch_VERSION "")
if(EXISTS "${torch_root}/version.py")
  file(STRINGS "${torch_root}/version.py" version_line REGEX "^__version__")
  string(REGEX REPLACE ".*['\"]([0-9]+(\\.[0-9]+)*).*" "\\1" Torch_VERSION "${version_line}")
endif()
if(Torch_VERSION AND Torch_FIND_REQUIRED AND Torch_FIND_VERSION_RANGE AND
   (Torch_VERSION VERSION_LESS Torch_FIND_VERSION_MIN OR NOT Torch_VERSION VERSION_LESS Torch_FIND_VERSION_MAX))
  # A line that begins with a space is not wrapped.
  message(FATAL_ERROR " torch ${Torch_VERSION} in ${torch_root} does not work with Penstock: install torch>=${Torch_FIND_VERSION_MIN},<${Torch_FIND_VERSION_MAX}, name one by Torch_ROOT, or build only the core with PENSTOCK_ENGINE=OFF (pip: -C cmake.define.NAME=VALUE)")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Torch
  REQUIRED_VARS Torch_CPU_LIBRARY Torch_C10_LIBRARY Torch_INCLUDE_DIR
  VERSION_VAR Torch_VERSION HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "run ./run once to install it (pip: install torch first), name an installed torch with -DTorch_ROOT=.../torch (pip: -C cmake.define.Torch_ROOT=.../torch), or build only the core with -DPENSTOCK_ENGINE=OFF (pip: -C cmake.define.PENSTOCK_ENGINE=OFF)")

if(Torch_FOUND AND NOT TARGET Torch::cpu)
  add_library(Torch::cpu INTERFACE IMPORTED)
  # The wheel bundles its own fmt headers. They are searched last, so that they do not hide the system's.
  set_target_properties(Torch::cpu PROPERTIES
    INTERFACE_COMPILE_OPTIONS
      "SHELL:-idirafter ${Torch_INCLUDE_DIR};SHELL:-idirafter ${Torch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(Torch::cpu INTERFACE ${Torch_CPU_LIBRARY} ${Torch_C10_LIBRARY})
  target_link_options(Torch::cpu INTERFACE "LINKER:-rpath,${torch_root}/lib")
  # What PyTorch has for CUDA, if the wheel is built for it: of CUDA itself, only headers are needed.
  find_library(Torch_CUDA_LIBRARY torch_cuda HINTS "${torch_root}/lib" NO_DEFAULT_PATH)
  find_library(Torch_C10_CUDA_LIBRARY c10_cuda HINTS "${torch_root}/lib" NO_DEFAULT_PATH)
  file(GLOB cuda_include_candidates "${torch_root}/../nvidia/cu*/include" "${torch_root}/../nvidia/cuda_runtime/include")
  find_path(Torch_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${cuda_include_candidates} /usr/local/cuda/include)
  if(Torch_CUDA_LIBRARY AND Torch_C10_CUDA_LIBRARY AND Torch_CUDA_INCLUDE_DIR)
    add_library(Torch::cuda INTERFACE IMPORTED)
    set_target_properties(Torch::cuda PROPERTIES INTERFACE_COMPILE_OPTIONS "SHELL:-idirafter ${Torch_CUDA_INCLUDE_DIR}")
    # NCCL's header, which the wheels that a torch for CUDA needs have; ./test has them in another environment.
    file(GLOB nccl_include_candidates "${torch_root}/../nvidia/nccl/include"
         "${PROJECT_SOURCE_DIR}/build/peer-venv/lib/python3*/site-packages/nvidia/nccl/include")
    find_path(Torch_NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_include_candidates})
    target_link_libraries(Torch::cuda INTERFACE ${Torch_CUDA_LIBRARY} ${Torch_C10_CUDA_LIBRARY} Torch::cpu)
  endif()
  # For extension modules of Python: tensors as Python objects.
  add_library(Torch::python INTERFACE IMPORTED)
  target_link_libraries(Torch::python INTERFACE ${Torch_PYTHON_LIBRARY} Torch::cpu)
endif()
