#include "checkpoint/merge.h"

#include <algorithm>
#include <cstdio>

#include "base/shared_file.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

// Bytes per write, because each write waits for the disk.
constexpr std::uint64_t kBufferBytes = std::uint64_t{64} << 20;

std::vector<TensorEntry> EntriesOf(const Manifest& manifest) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : manifest.tensors) {
    if (name.starts_with(kOptimizerPrefix)) continue;
    entries.push_back(
        {name, tensor.dtype, tensor.shape, tensor.elements() * *BytesOfDtype(tensor.dtype)});
  }
  return entries;
}

// Writes the tensors to a file and computes their checksum. They are consecutive, so a buffer may
// contain the end of one and the start of the next.
class MergeWriter {
 public:
  MergeWriter(std::string file, const SafetensorsLayout& layout)
      : file_(std::move(file)), layout_(layout), offset_(layout.head_bytes()) {}

  Status Write(CheckpointReader& from) {
    for (const TensorEntry& entry : layout_.entries()) {
      PENSTOCK_TRY_STATUS(Add(from, entry.name, *BytesOfDtype(entry.dtype)));
    }
    PENSTOCK_TRY_STATUS(Flush());
    const std::string head = layout_.Head(checksum_);
    const FilePart part{0, head};
    return WriteParts(file_, {&part, 1});
  }

 private:
  Status Add(CheckpointReader& from, const std::string& name, std::size_t element_bytes) {
    const Layout whole(from.manifest().tensors.at(name).shape);
    const auto elements = static_cast<std::uint64_t>(whole.elements());
    for (std::uint64_t begin = 0; begin < elements;) {
      const std::uint64_t space = (kBufferBytes - buffer_.size()) / element_bytes;
      const std::uint64_t end = std::min(begin + space, elements);
      const std::size_t used = buffer_.size();
      buffer_.resize(used + (end - begin) * element_bytes);
      PENSTOCK_TRY_STATUS(from.Read(name, whole.From(static_cast<std::int64_t>(begin)),
                                    std::span(buffer_).subspan(used)));
      if (end < elements) PENSTOCK_TRY_STATUS(Flush());
      begin = end;
    }
    return {};
  }

  Status Flush() {
    checksum_ = Crc32(buffer_, checksum_);
    const FilePart part{offset_, buffer_};
    PENSTOCK_TRY_STATUS(WriteParts(file_, {&part, 1}));
    offset_ += buffer_.size();
    buffer_.clear();
    return {};
  }

  const std::string file_;
  const SafetensorsLayout& layout_;
  std::size_t offset_;  // of the buffer in the file
  std::string buffer_;
  std::uint32_t checksum_ = 0;
};

}  // namespace

Result<MergedWeights> MergeWeights(CheckpointReader& checkpoint, const std::string& file) {
  const SafetensorsLayout layout(MetadataOf(checkpoint.manifest()),
                                 EntriesOf(checkpoint.manifest()));
  PENSTOCK_TRY(const std::string temporary, CreateSharedFile(file, layout.file_bytes()));
  Status status = MergeWriter(temporary, layout).Write(checkpoint);
  if (status) status = Publish(temporary, file);
  if (status) return MergedWeights{layout.entries().size(), layout.file_bytes()};
  std::remove(temporary.c_str());
  return MakeError(ErrorCode::kUnavailable, "{}", status.error().line());
}

}  // namespace penstock
