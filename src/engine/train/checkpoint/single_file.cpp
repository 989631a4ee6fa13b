#include "train/checkpoint/single_file.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/byte_stream.h"
#include "base/shared_file.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

// Serializes a process's metadata and its tensors' names and shapes.
Result<std::string> Describe(const Safetensors& own) {
  ByteWriter writer;
  writer.Put(static_cast<std::uint64_t>(own.metadata.size()));
  for (const auto& [key, text] : own.metadata) {
    writer.PutText(key);
    writer.PutText(text);
  }
  writer.Put(static_cast<std::uint64_t>(own.tensors.size()));
  for (const auto& [name, tensor] : own.tensors) {
    writer.PutText(name);
    PENSTOCK_TRY(const std::string dtype, DtypeName(tensor.scalar_type()));
    writer.PutText(dtype);
    writer.PutAll(std::span<const std::int64_t>(tensor.sizes()));
    writer.Put(static_cast<std::uint64_t>(tensor.nbytes()));
  }
  return writer.Take();
}

// A file's tensors, and the process that writes each of them.
struct TensorsByProcess {
  SafetensorsLayout layout;
  std::vector<int> processes;  // by entry
};

TensorsByProcess Merge(const std::vector<std::string>& descriptions) {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::pair<TensorEntry, int>> all;
  for (int process = 0; process < std::ssize(descriptions); ++process) {
    ByteReader reader(descriptions[process]);
    for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
      std::string key = reader.GetText();
      std::string text = reader.GetText();
      if (process == 0) metadata.emplace(std::move(key), std::move(text));
    }
    for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
      TensorEntry entry;
      entry.name = reader.GetText();
      entry.dtype = reader.GetText();
      entry.shape = reader.GetAll<std::int64_t>();
      entry.bytes = reader.Get<std::uint64_t>();
      const std::string name = entry.name;
      all.emplace(name, std::pair(std::move(entry), process));
    }
  }
  std::vector<TensorEntry> entries;
  std::vector<int> processes;
  for (auto& [name, entry] : all) {
    entries.push_back(std::move(entry.first));
    processes.push_back(entry.second);
  }
  return {SafetensorsLayout(metadata, std::move(entries)), std::move(processes)};
}

// Writes this process's tensors and returns the checksum of each, in the order of the file.
Result<std::vector<std::uint32_t>> WriteOwn(const TensorsByProcess& shards, int process,
                                            const std::string& file, const Safetensors& own) {
  std::vector<std::uint32_t> checksums;
  std::vector<at::Tensor> tensors;  // own the bytes of the parts
  std::vector<FilePart> parts;
  for (std::size_t i = 0; i < shards.processes.size(); ++i) {
    if (shards.processes[i] != process) continue;
    const at::Tensor& tensor = own.tensors.at(shards.layout.entries()[i].name);
    tensors.push_back(tensor.to(at::kCPU).contiguous());
    parts.push_back({shards.layout.offset(i), RawBytes(tensors.back())});
    checksums.push_back(Crc32(parts.back().bytes));
  }
  PENSTOCK_TRY_STATUS(WriteParts(file, parts));
  return checksums;
}

std::vector<std::uint32_t> InOrder(const TensorsByProcess& shards,
                                   const std::vector<std::string>& all) {
  std::vector<std::vector<std::uint32_t>> by_process;
  for (const std::string& bytes : all) {
    by_process.push_back(ByteReader(bytes).GetAll<std::uint32_t>());
    std::ranges::reverse(by_process.back());
  }
  std::vector<std::uint32_t> checksums;
  for (const int process : shards.processes) {
    PENSTOCK_CHECK(!by_process[process].empty(), "process {} sent too few checksums", process);
    checksums.push_back(by_process[process].back());
    by_process[process].pop_back();
  }
  return checksums;
}

// Creates the file before all processes write to it. Does nothing except on the leader.
Result<std::string> Create(const Collectives& processes, const TensorsByProcess& shards,
                           const std::string& path) {
  if (!processes.leads()) return std::string();
  return CreateSharedFile(path, shards.layout.file_bytes());
}

// Writes the head and publishes the file after all processes have written. Called on the leader.
Status Complete(const TensorsByProcess& shards, const std::vector<std::uint32_t>& checksums,
                const std::string& file, const std::string& path) {
  const std::string head = shards.layout.Head(checksums);
  const FilePart part{0, head};
  PENSTOCK_TRY_STATUS(WriteParts(file, {&part, 1}));
  return Publish(file, path);
}

}  // namespace

Status WriteSingleFile(Collectives& processes, const std::string& path, const Safetensors& own) {
  if (processes.processes() == 1) return WriteSafetensors(path, own);
  PENSTOCK_TRY(std::string description, Describe(own));
  PENSTOCK_TRY(const std::vector<std::string> descriptions,
               processes.AllGather(std::move(description)));
  const TensorsByProcess shards = Merge(descriptions);
  const Result<std::string> created = Create(processes, shards, path);
  PENSTOCK_TRY_STATUS(processes.All(created ? Status() : tl::unexpected(created.error())));
  PENSTOCK_TRY(const std::string file, processes.FromLeader(*created));
  const auto written = WriteOwn(shards, processes.process(), file, own);
  ByteWriter checksums;
  checksums.PutAll(
      std::span<const std::uint32_t>(written ? *written : std::vector<std::uint32_t>()));
  PENSTOCK_TRY(const std::vector<std::string> all, processes.AllGather(checksums.Take()));
  Status status = processes.All(written ? Status() : tl::unexpected(written.error()));
  if (status) {
    status = processes.All(processes.leads() ? Complete(shards, InOrder(shards, all), file, path)
                                             : Status());
  }
  if (!status && processes.leads()) std::remove(file.c_str());
  return status;
}

}  // namespace penstock
