// Runs a fuzzer's check on files, for compilers without libFuzzer: replay FILE|FOLDER...
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

int Replay(const fs::path& path) {
  if (fs::is_directory(path)) {
    int count = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      count += Replay(entry.path());
    }
    return count;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int count = 0;
  for (int i = 1; i < argc; ++i) count += Replay(argv[i]);
  std::printf("%d inputs\n", count);
  return count > 0 ? 0 : 1;
}
