// The kernel cache loads no file that another user could have written, replaces damaged files, and
// kills a compiler that hangs.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/files.h"
#include "graph/kernel/compiler.h"
#include "tests/engine/graph/kernel/kernel_cache.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSource = "extern \"C\" int Answer() { return 42; }\n";
const std::vector<std::string> kNames = {"Answer"};

// Returns the result of Answer(), or -1 if it is not compiled.
int ResultOfAnswer(const Result<CompiledFunctions>& functions) {
  if (!functions) return -1;
  return reinterpret_cast<int (*)()>(functions->addresses.at(0))();
}

// Replaces the cached library of kSource by one whose constructor creates the file `mark`.
fs::path PlantLibrary(const fs::path& mark) {
  const std::string crafted = fmt::format(
      "extern \"C\" int creat(const char*, unsigned);\n"
      "__attribute__((constructor)) static void Run() {{ creat(\"{}\", 0600); }}\n"
      "extern \"C\" int Answer() {{ return 666; }}\n",
      mark.string());
  const std::string content = ReadFile(CompileToLibrary(crafted)->file()).value();
  const fs::path file = CompileToLibrary(kSource)->file();
  EXPECT_TRUE(WriteFileAtomically(file.string(), content));
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  return file;
}

TEST(KernelCompiler, CompilesOnce) {
  const KernelCache cache;
  const CompiledLibrary first = CompileToLibrary(kSource).value();
  EXPECT_TRUE(first.compiled);
  const CompiledLibrary second = CompileToLibrary(kSource).value();
  EXPECT_FALSE(second.compiled);
  EXPECT_EQ(first.file(), second.file());
  EXPECT_EQ(cache.Files(), 1u);  // no other files
  EXPECT_EQ(fs::status(cache.folder()).permissions(), fs::perms::owner_all);
}

TEST(KernelCompiler, RecompilesADamagedFile) {
  const KernelCache cache;
  const std::string path = CompileToLibrary(kSource)->file();
  const std::string whole = ReadFile(path).value();
  std::string changed = whole;
  changed[changed.size() / 2] ^= 1;
  for (const std::string& broken : {std::string(), whole.substr(0, whole.size() / 2), changed}) {
    ASSERT_TRUE(WriteFileAtomically(path, broken));
    EXPECT_TRUE(CompileToLibrary(kSource)->compiled);
    EXPECT_EQ(ReadFile(path).value(), whole);
  }
}

TEST(KernelCompiler, RecompilesALibraryThatLacksAFunction) {
  const KernelCache cache;
  const std::string other = CompileToLibrary("extern \"C\" int Other() { return 1; }\n")->file();
  const std::string path = CompileToLibrary(kSource)->file();
  fs::copy_file(other, path, fs::copy_options::overwrite_existing);
  const auto functions = CompileFunctions(kSource, kNames);
  EXPECT_EQ(ResultOfAnswer(functions), 42);
  EXPECT_TRUE(functions->compiled);
  EXPECT_FALSE(CompileToLibrary(kSource)->compiled);  // it is in the cache
}

TEST(KernelCompiler, LoadsNothingFromAFolderThatOthersCanWrite) {
  const KernelCache cache;
  const fs::path mark = cache.scratch() / "mark";
  PlantLibrary(mark);
  fs::permissions(cache.folder(), fs::perms::all);
  ::testing::internal::CaptureStderr();
  const auto functions = CompileFunctions(kSource, kNames);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(ResultOfAnswer(functions), 42);
  EXPECT_FALSE(fs::exists(mark));
  EXPECT_TRUE(functions->compiled);
  EXPECT_TRUE(Contains(said, "other users may write to the folder " + cache.folder().string()));
}

TEST(KernelCompiler, LoadsNoFileThatOthersCanWrite) {
  const KernelCache cache;
  const fs::path mark = cache.scratch() / "mark";
  const fs::path file = PlantLibrary(mark);
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(ResultOfAnswer(CompileFunctions(kSource, kNames)), 42);
  EXPECT_FALSE(fs::exists(mark));
}

TEST(KernelCompiler, LoadsNoFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the owner of a file";
  const KernelCache cache;
  const fs::path mark = cache.scratch() / "mark";
  const fs::path file = PlantLibrary(mark);
  ASSERT_EQ(chown(file.c_str(), 12345, 12345), 0);
  EXPECT_EQ(ResultOfAnswer(CompileFunctions(kSource, kNames)), 42);
  EXPECT_FALSE(fs::exists(mark));
}

TEST(KernelCompiler, LoadsNothingFromAFolderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can change the owner of a folder";
  const KernelCache cache;
  const fs::path mark = cache.scratch() / "mark";
  PlantLibrary(mark);
  ASSERT_EQ(chown(cache.folder().c_str(), 12345, 12345), 0);
  EXPECT_EQ(ResultOfAnswer(CompileFunctions(kSource, kNames)), 42);
  EXPECT_FALSE(fs::exists(mark));
}

TEST(KernelCompiler, DoesNotBlockOnAFifo) {
  const KernelCache cache;
  const fs::path file = CompileToLibrary(kSource)->file();
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(ResultOfAnswer(CompileFunctions(kSource, kNames)), 42);
}

TEST(KernelCompiler, WorksWithoutACacheFolder) {
  KernelCache cache;
  cache.Set("XDG_CACHE_HOME", "/dev/null");
  EXPECT_EQ(ResultOfAnswer(CompileFunctions(kSource, kNames)), 42);
}

TEST(KernelCompiler, ReportsWhatFails) {
  KernelCache cache;
  const auto said = [](const char* source) {
    const auto file = CompileToLibrary(source);
    return file ? "nothing" : file.error().line();
  };
  EXPECT_NE(said("no C++").find("cannot compile a kernel"), std::string::npos);
  cache.Set("PENSTOCK_CXX", "/no/such/compiler");
  EXPECT_NE(said(kSource).find("cannot run the C++ compiler /no/such/compiler"), std::string::npos);
}

// A compiler that answers --version and then hangs, together with a child process.
TEST(KernelCompiler, KillsAHangingCompilerAndItsChildren) {
  KernelCache cache;
  const fs::path compiler = cache.scratch() / "hanging";
  std::ofstream(compiler) << "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 1.0\n"
                             "sleep 1000 &\nwait\n";
  fs::permissions(compiler, fs::perms::owner_all);
  cache.Set("PENSTOCK_CXX", compiler.c_str());
  // Both processes inherit the write end. The read end gets end-of-file once both have exited.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto file =
      CompileToLibrary(kSource, {.limit = std::chrono::milliseconds(300), .recompile = false});
  close(ends[1]);
  EXPECT_TRUE(Refused(file, "hanging did not end within 0.3 s and was killed",
                      ErrorCode::kDeadlineExceeded));
  pollfd end = {ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 60'000), 1) << "a process of the compiler is still running";
  close(ends[0]);
}

}  // namespace
}  // namespace penstock::testing
