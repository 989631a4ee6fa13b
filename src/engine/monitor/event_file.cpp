#include "monitor/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <string_view>

#include "base/system/machine_name.h"

namespace penstock {
namespace {

// Returns the microseconds since 1970.
std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// TensorBoard reads the files of a folder in the order of their names.
std::string FileName() {
  const std::int64_t now = Now();
  return fmt::format("events.out.tfevents.{:010}.{:06}.{}.{}", now / 1'000'000, now % 1'000'000,
                     MachineName(), getpid());
}

// ---- tensorflow.Event as protobuf: each field is a key (number * 8 + wire type) and a value

enum WireType { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

template <class T>
void PutFixed(T value, std::string& bytes) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xff);
  }
}

void PutVarint(std::uint64_t value, std::string& bytes) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  bytes += static_cast<char>(value);
}

void PutKey(int field, WireType type, std::string& bytes) {
  PutVarint(static_cast<std::uint64_t>(field) * 8 + type, bytes);
}

void PutBytes(int field, std::string_view value, std::string& bytes) {
  PutKey(field, kLengthDelimited, bytes);
  PutVarint(value.size(), bytes);
  bytes += value;
}

std::string EventAt(std::int64_t step) {
  std::string event;
  PutKey(1, kFixed64, event);  // wall_time
  PutFixed(std::bit_cast<std::uint64_t>(static_cast<double>(Now()) * 1e-6), event);
  PutKey(2, kVarint, event);  // step
  PutVarint(static_cast<std::uint64_t>(step), event);
  return event;
}

std::string VersionEvent() {
  std::string event = EventAt(0);
  PutBytes(3, "brain.Event:2", event);  // file_version
  return event;
}

std::string StartEvent(std::int64_t first_step) {
  std::string log;
  PutKey(1, kVarint, log);  // SessionLog.status
  PutVarint(1, log);        // START
  std::string event = EventAt(first_step);
  PutBytes(7, log, event);  // session_log
  return event;
}

std::string ScalarEvent(std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    PutBytes(1, scalar.tag, value);
    PutKey(2, kFixed32, value);  // simple_value
    PutFixed(std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)), value);
    PutBytes(1, value, summary);
  }
  std::string event = EventAt(step);
  PutBytes(5, summary, event);
  return event;
}

// ---- TFRecord: length, checksum of the length, bytes, checksum of the bytes

constexpr std::array<std::uint32_t, 256> CrcTable() {
  constexpr std::uint32_t kCastagnoli = 0x82f63b78;  // reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[i] = crc;
  }
  return table;
}

// The CRC-32C, masked because a CRC of bytes that contain CRCs is weak.
std::uint32_t MaskedCrc(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = CrcTable();
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return std::rotr(crc ^ 0xffffffff, 15) + 0xa282ead8;
}

std::string Record(std::string_view bytes) {
  std::string record;
  PutFixed<std::uint64_t>(bytes.size(), record);
  PutFixed(MaskedCrc(record), record);
  record += bytes;
  PutFixed(MaskedCrc(bytes), record);
  return record;
}

}  // namespace

EventFile::EventFile(std::string folder, std::int64_t first_step)
    : file_(std::move(folder) + "/" + FileName()), first_step_(first_step) {}

Status EventFile::Append(std::int64_t step, std::span<const Scalar> scalars) {
  if (!file_.is_open()) {
    PENSTOCK_TRY_STATUS(file_.Open(Record(VersionEvent()) + Record(StartEvent(first_step_))));
  }
  return file_.Append(Record(ScalarEvent(step, scalars)));
}

}  // namespace penstock
