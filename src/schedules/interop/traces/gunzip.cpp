#include "interop/traces/gunzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

namespace penstock {

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

Result<std::string> Gunzip(std::string_view bytes, std::size_t most) {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return InvalidArgument("zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  std::string content;
  std::array<char, std::size_t{1} << 16> block;
  int state = Z_OK;
  while (state == Z_OK) {
    if (stream.avail_in == 0 && !bytes.empty()) {
      const std::size_t piece =
          std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(piece);
      bytes.remove_prefix(piece);
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    state = inflate(&stream, Z_NO_FLUSH);
    content.append(block.data(), block.size() - stream.avail_out);
    if (content.size() > most) {
      return InvalidArgument("its content is larger than {} MiB", most >> 20);
    }
  }
  if (state != Z_STREAM_END) {
    return InvalidArgument("the gzip data is damaged or incomplete; copy the file again");
  }
  return content;
}

}  // namespace penstock
