#include "train/checkpoint/write_together.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/byte_stream.h"
#include "base/shared_file.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

// Serializes a host's metadata and its tensors' names and shapes.
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

// A file's tensors, and the host that writes each of them.
struct TensorsByHost {
  SafetensorsLayout layout;
  std::vector<int> hosts;  // by entry
};

TensorsByHost Merge(const std::vector<std::string>& descriptions) {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::pair<TensorEntry, int>> all;
  for (int host = 0; host < std::ssize(descriptions); ++host) {
    ByteReader reader(descriptions[host]);
    for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
      std::string key = reader.GetText();
      std::string text = reader.GetText();
      if (host == 0) metadata.emplace(std::move(key), std::move(text));
    }
    for (auto left = reader.Get<std::uint64_t>(); left > 0; --left) {
      TensorEntry entry;
      entry.name = reader.GetText();
      entry.dtype = reader.GetText();
      entry.shape = reader.GetAll<std::int64_t>();
      entry.bytes = reader.Get<std::uint64_t>();
      const std::string name = entry.name;
      all.emplace(name, std::pair(std::move(entry), host));
    }
  }
  std::vector<TensorEntry> entries;
  std::vector<int> hosts;
  for (auto& [name, entry] : all) {
    entries.push_back(std::move(entry.first));
    hosts.push_back(entry.second);
  }
  return {SafetensorsLayout(metadata, std::move(entries)), std::move(hosts)};
}

// Writes this host's tensors and returns the checksum of each, in the order of the file.
Result<std::vector<std::uint32_t>> WriteOwn(const TensorsByHost& shards, int host,
                                            const std::string& file, const Safetensors& own) {
  std::vector<std::uint32_t> checksums;
  std::vector<at::Tensor> tensors;  // own the bytes of the parts
  std::vector<FilePart> parts;
  for (std::size_t i = 0; i < shards.hosts.size(); ++i) {
    if (shards.hosts[i] != host) continue;
    const at::Tensor& tensor = own.tensors.at(shards.layout.entries()[i].name);
    tensors.push_back(tensor.to(at::kCPU).contiguous());
    parts.push_back({shards.layout.offset(i), RawBytes(tensors.back())});
    checksums.push_back(Crc32(parts.back().bytes));
  }
  PENSTOCK_TRY_STATUS(WriteParts(file, parts));
  return checksums;
}

std::vector<std::uint32_t> InOrder(const TensorsByHost& shards,
                                   const std::vector<std::string>& all) {
  std::vector<std::vector<std::uint32_t>> by_host;
  for (const std::string& bytes : all) {
    by_host.push_back(ByteReader(bytes).GetAll<std::uint32_t>());
    std::ranges::reverse(by_host.back());
  }
  std::vector<std::uint32_t> checksums;
  for (const int host : shards.hosts) {
    PENSTOCK_CHECK(!by_host[host].empty(), "host {} sent too few checksums", host);
    checksums.push_back(by_host[host].back());
    by_host[host].pop_back();
  }
  return checksums;
}

// Creates the file before all hosts write to it. Does nothing except on the leader.
Result<std::string> Create(const Collectives& hosts, const TensorsByHost& shards,
                           const std::string& path) {
  if (!hosts.leads()) return std::string();
  return CreateSharedFile(path, shards.layout.file_bytes());
}

// Writes the head and publishes the file after all hosts have written. Called on the leader.
Status Complete(const TensorsByHost& shards, const std::vector<std::uint32_t>& checksums,
                const std::string& file, const std::string& path) {
  const std::string head = shards.layout.Head(checksums);
  const FilePart part{0, head};
  PENSTOCK_TRY_STATUS(WriteParts(file, {&part, 1}));
  return Publish(file, path);
}

}  // namespace

Status WriteTogether(Collectives& hosts, const std::string& path, const Safetensors& own) {
  if (hosts.hosts() == 1) return WriteSafetensors(path, own);
  PENSTOCK_TRY(std::string description, Describe(own));
  PENSTOCK_TRY(const std::vector<std::string> descriptions,
               hosts.AllGather(std::move(description)));
  const TensorsByHost shards = Merge(descriptions);
  const Result<std::string> created = Create(hosts, shards, path);
  PENSTOCK_TRY_STATUS(hosts.All(created ? Status() : tl::unexpected(created.error())));
  PENSTOCK_TRY(const std::string file, hosts.FromLeader(*created));
  const auto written = WriteOwn(shards, hosts.host(), file, own);
  ByteWriter checksums;
  checksums.PutAll(
      std::span<const std::uint32_t>(written ? *written : std::vector<std::uint32_t>()));
  PENSTOCK_TRY(const std::vector<std::string> all, hosts.AllGather(checksums.Take()));
  Status status = hosts.All(written ? Status() : tl::unexpected(written.error()));
  if (status) {
    status =
        hosts.All(hosts.leads() ? Complete(shards, InOrder(shards, all), file, path) : Status());
  }
  if (!status && hosts.leads()) std::remove(file.c_str());
  return status;
}

}  // namespace penstock
