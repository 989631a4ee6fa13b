#include "graph/kernel/compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/files.h"
#include "base/mix_bits.h"

namespace penstock {
namespace {

// No contraction: a kernel rounds where the ops that it stands for do.
constexpr std::array kFlags = {"-O3",
                               "-march=native",
                               "-ffp-contract=off",
                               "-fno-math-errno",
                               "-fno-trapping-math",
                               "-fopenmp-simd",
                               "-fPIC",
                               "-shared",
                               "-w"};

// 128 bits of the text, as 32 hexadecimal digits.
std::string Digest(std::string_view text) {
  std::uint64_t low = text.size();
  std::uint64_t high = ~low;
  for (const char c : text) {
    const auto byte = static_cast<std::uint64_t>(static_cast<unsigned char>(c));
    low = MixBits(low + byte);
    high = MixBits(high ^ (byte + 0x9E3779B97F4A7C15ULL));
  }
  return fmt::format("{:016x}{:016x}", low, high);
}

const char* Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

Result<std::filesystem::path> CacheFolder() {
  std::filesystem::path folder;
  if (const char* cache = Variable("XDG_CACHE_HOME")) {
    folder = cache;
  } else if (const char* home = Variable("HOME")) {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return MakeError(ErrorCode::kUnavailable,
                     "no folder for compiled kernels: set XDG_CACHE_HOME or HOME");
  }
  folder /= "penstock";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return MakeError(ErrorCode::kUnavailable, "cannot make the folder {} for compiled kernels: {}",
                     folder.string(), error.message());
  }
  return folder;
}

// Runs the command with its output going to `output_path`; its exit status, -1 where it cannot be
// run.
int RunCommand(std::vector<std::string> command, const std::string& output_path) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_path.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// What -march=native depends on, as far as the system says.
std::string Processor() {
  const auto information = ReadFile("/proc/cpuinfo");
  if (!information) return "unknown";
  // The first processor's: up to the first empty line, without what changes from moment to moment.
  std::string text;
  std::size_t at = 0;
  while (at < information->size() && (*information)[at] != '\n') {
    const std::size_t end = std::min(information->find('\n', at), information->size());
    const std::string_view line = std::string_view(*information).substr(at, end - at);
    if (line.substr(0, 7) != "cpu MHz" && line.substr(0, 8) != "bogomips") text += line;
    at = end + 1;
  }
  return text;
}

std::string CompilerName() {
  const char* const named = Variable("PENSTOCK_CXX");
  return named == nullptr ? "c++" : named;
}

// "g++ (Debian ...) 12.2.0": asked once for every compiler's name.
Result<std::string> CompilerVersion(const std::string& compiler, const std::string& scratch) {
  const int status = RunCommand({compiler, "--version"}, scratch);
  const auto text = ReadFile(scratch);
  std::remove(scratch.c_str());
  if (status != 0 || !text) {
    return MakeError(ErrorCode::kUnavailable, "cannot run the C++ compiler {}", compiler);
  }
  return FirstLine(*text);
}

// A library file is the shared object, then the digest of its bytes.
constexpr std::size_t kDigestSize = 32;
bool IsWhole(const std::string& path) {
  const auto content = ReadFile(path);
  if (!content || content->size() < kDigestSize) return false;
  const std::string_view text = *content;
  const std::string_view object = text.substr(0, text.size() - kDigestSize);
  return Digest(object) == text.substr(object.size());
}

// Everything is made under a name of this process's own, then renamed.
Status Compile(std::string_view source, const std::string& compiler, const std::string& library) {
  const std::string beside = fmt::format("{}.{}", library, getpid());
  const std::string source_path = beside + ".cpp", object = beside + ".o", log = beside + ".log";
  PENSTOCK_TRY_STATUS(WriteFileAtomically(source_path, source));
  std::vector<std::string> command = {compiler};
  command.insert(command.end(), kFlags.begin(), kFlags.end());
  command.insert(command.end(), {"-o", object, source_path});
  const int status = RunCommand(std::move(command), log);
  auto content = ReadFile(object);
  const std::string said = ReadFile(log).value_or("");
  for (const std::string& path : {source_path, object, log}) std::remove(path.c_str());
  if (status != 0 || !content) {
    return MakeError(ErrorCode::kUnavailable, "{} does not compile a kernel: {}", compiler,
                     FirstLine(said));
  }
  *content += Digest(*content);
  return WriteFileAtomically(library, *content);
}

}  // namespace

Result<CompiledFile> CompileToLibrary(std::string_view source) {
  PENSTOCK_TRY(const std::filesystem::path folder, CacheFolder());
  const std::string compiler = CompilerName();
  PENSTOCK_TRY(const std::string version,
               CompilerVersion(compiler, (folder / fmt::format("version.{}", getpid())).string()));
  std::string key = fmt::format("{}\n{}\n{}\n", source, version, Processor());
  for (const char* flag : kFlags) key += flag;
  CompiledFile file{(folder / (Digest(key) + ".so")).string()};
  if (IsWhole(file.path)) return file;
  PENSTOCK_TRY_STATUS(Compile(source, compiler, file.path));
  file.compiled = true;
  return file;
}

}  // namespace penstock
