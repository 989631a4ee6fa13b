#include "interop/traces/trace_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/files.h"
#include "base/text/numbers.h"

namespace penstock {
namespace {

// Whether the bytes begin with gzip's magic number.
bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

// Returns the content. Errors: kInvalidArgument if the bytes are damaged or incomplete, or the
// content is larger than `most` bytes.
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

// A trace of a training step with stacks takes some hundred megabytes. Parsing takes a second per
// hundred.
constexpr FileLimit kTraceFile = {std::size_t{1} << 31, "trace"};

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Receives the values of the JSON parser, which would need ten times the memory for a tree.
class TraceHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TraceHandler(TraceFile& file) : file_(file) { Intern(""); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    Whole(value);
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    Whole(static_cast<std::int64_t>(
        std::min<number_unsigned_t>(value, std::numeric_limits<std::int64_t>::max())));
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool string(string_t& value) override {
    if (in_own_ && depth_ == 2 && key_ == "penstock") file_.own = value;
    if (!in_event()) return true;
    if (key_ == "ts" || key_ == "dur") {  // Ascend's profiler writes them as texts
      const Result<double> number = ParseNumber(value);
      return !number || Number(*number);
    }
    if (key_ == "ph" && value.size() == 1) phase_ = value.front();
    if (std::uint32_t* const text = TextOf(key_)) *text = Intern(value);
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    if (++depth_ == event_depth_) {
      event_ = {kUnknown, kUnknown, 0, 0, 0, 0};
      phase_ = 0;
    }
    in_info_ = in_info_ || (depth_ == 2 && key_ == "distributedInfo");
    in_own_ = in_own_ || (depth_ == 2 && key_ == "otherData");
    return true;
  }
  bool end_object() override {
    if (in_event()) Add();
    if (--depth_ == 1) in_info_ = in_own_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    if (in_info_ && depth_ == kGroupDepth && key_ == "ranks") file_.groups.emplace_back();
    if ((depth_ == 2 && key_ == "traceEvents") || (depth_ == 1 && event_depth_ == 0)) {
      event_depth_ = depth_ + 1;
      has_events_ = true;
    }
    return true;
  }
  bool end_array() override {
    if (--depth_ < event_depth_ - 1) event_depth_ = kNever;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    is_model_ = is_model_ || (depth_ == 1 && (name == "model_type" || name == "architectures"));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    failed_at_ = position;
    return false;
  }

  bool has_events() const { return has_events_; }
  // Whether it is a config.json of Hugging Face's.
  bool is_model() const { return is_model_; }
  std::size_t failed_at() const { return failed_at_; }

 private:
  static constexpr int kNever = -1;
  static constexpr int kGroupDepth = 5;  // of distributedInfo.pg_config[N].ranks

  bool in_event() const { return depth_ == event_depth_ && event_depth_ > 0; }

  std::uint32_t* TextOf(const std::string& name) {
    if (name == "name") return &event_.name;
    if (name == "cat") return &event_.category;
    if (name == "pid") return &event_.process;
    return name == "tid" ? &event_.thread : nullptr;
  }
  std::uint32_t Intern(const std::string& text) {
    const auto [at, added] =
        texts_.try_emplace(text, static_cast<std::uint32_t>(file_.texts.size()));
    if (added) file_.texts.push_back(text);
    return at->second;
  }

  bool Number(double value) {
    if (!in_event()) return true;
    if (key_ == "ts") event_.start = value;
    if (key_ == "dur") event_.duration = value;
    return true;
  }
  void Whole(std::int64_t value) {
    if (in_info_) Info(value);
    if (depth_ == 1 && key_ == "baseTimeNanoseconds") file_.base_nanoseconds = value;
    if (in_event() && (key_ == "pid" || key_ == "tid")) {
      *TextOf(key_) = Intern(std::to_string(value));
    }
  }

  void Info(std::int64_t value) {
    if (value < 0 || value > std::numeric_limits<int>::max()) return;
    const int number = static_cast<int>(value);
    if (depth_ == 2 && key_ == "rank") file_.rank = number;
    if (depth_ == 2 && key_ == "world_size") file_.world_size = number;
    if (depth_ == kGroupDepth && key_ == "ranks") file_.groups.back().push_back(number);
  }

  void Add() {
    const std::pair thread(event_.process, event_.thread);
    if (phase_ == 'X') file_.events.push_back(event_);
    if (phase_ == 'B') open_[thread].push_back(event_);
    if (phase_ != 'E' || open_[thread].empty()) return;
    TraceEvent closed = open_[thread].back();
    open_[thread].pop_back();
    closed.duration = event_.start - closed.start;
    file_.events.push_back(closed);
  }

  TraceFile& file_;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<TraceEvent>> open_;
  int depth_ = 0;
  int event_depth_ = 0;  // of the objects that are events; 0 until the list begins
  bool in_info_ = false, in_own_ = false, has_events_ = false, is_model_ = false;
  std::string key_;  // the last one
  char phase_ = 0;
  TraceEvent event_;
  std::size_t failed_at_ = 0;
};

// Returns the JSON without commas that nothing follows, and with the ']' that ends an array of
// events. The trace event format allows both. An event that is cut off stays so.
std::string Completed(std::string_view text) {
  std::string completed, open;
  completed.reserve(text.size() + 1);
  bool in_string = false;
  std::size_t comma = std::string::npos;  // in `completed`, if only blanks follow it
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    completed += c;
    if (in_string) {
      if (c == '\\' && i + 1 < text.size()) completed += text[++i];
      in_string = c != '"';
      continue;
    }
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if ((c == ']' || c == '}') && comma != std::string::npos) completed[comma] = ' ';
    comma = c == ',' ? completed.size() - 1 : std::string::npos;
    in_string = c == '"';
    if (c == '[' || c == '{') open += c;
    if ((c == ']' || c == '}') && !open.empty()) open.pop_back();
  }
  if (open != "[" || in_string) return completed;
  if (comma != std::string::npos) completed[comma] = ' ';
  return completed += ']';
}

Error DamagedJson(const std::string& path, std::size_t at, std::size_t size) {
  const std::string place = at >= size ? fmt::format("ends too early, after {} bytes", size)
                                       : fmt::format("is damaged at byte {} of {}", at, size);
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: the JSON {}; record the trace again, and let the program end before you "
                      "copy the file",
                      path, place)};
}

Error NoTrace(const std::string& path, bool is_model) {
  if (is_model) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} is the configuration of a model, not a schedule; give it as `model` {}",
                        path, path)};
  }
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} is not a Chrome trace: it has no list traceEvents; export one with "
                      "torch.profiler's export_chrome_trace",
                      path)};
}

}  // namespace

bool HasTraceEnding(const std::string& path) {
  std::string lower = path;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.ends_with(".json") || lower.ends_with(".json.gz");
}

Result<TraceFile> ReadTraceFile(const std::string& path) {
  PENSTOCK_TRY(std::string text, ReadFile(path, kTraceFile));
  if (IsGzip(text)) {
    auto unpacked = Gunzip(text, kTraceFile.bytes);
    if (!unpacked) return tl::unexpected(In(path, unpacked.error()));
    text = std::move(*unpacked);
  }
  for (bool is_completed = false;; is_completed = true) {
    TraceFile file;
    file.path = path;
    TraceHandler handler(file);
    if (nlohmann::json::sax_parse(text, &handler)) {
      if (handler.has_events()) return file;
      return tl::unexpected(NoTrace(path, handler.is_model()));
    }
    if (is_completed) return tl::unexpected(DamagedJson(path, handler.failed_at(), text.size()));
    text = Completed(text);
  }
}

}  // namespace penstock
