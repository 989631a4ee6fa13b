#include "train/checkpoint/write_shards.h"

#include <filesystem>

#include "base/byte_stream.h"
#include "base/files.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard.h"
#include "checkpoint/shard_plan.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Serializes what this process can write.
Result<std::string> Offer(const NamedState& own) {
  ByteWriter writer;
  for (const StatePiece& piece : own) {
    writer.PutText(piece.name);
    PENSTOCK_TRY(const std::string dtype, DtypeName(piece.values.scalar_type()));
    writer.PutText(dtype);
    writer.PutAll(std::span<const std::int64_t>(piece.layout.shape()));
    writer.Put(piece.layout.box().value_or(Box()));
    writer.Put(piece.layout.begin());
    writer.Put(piece.values.numel());
  }
  return writer.Take();
}

std::vector<OfferedPiece> ReadOffer(std::string_view bytes) {
  std::vector<OfferedPiece> offered;
  for (ByteReader reader(bytes); !reader.at_end();) {
    std::string name = reader.GetText();
    std::string dtype = reader.GetText();
    std::vector<std::int64_t> shape = reader.GetAll<std::int64_t>();
    const Box box = reader.Get<Box>();
    const Layout layout = box == Box() ? Layout(std::move(shape)) : Layout(std::move(shape), box);
    const auto begin = reader.Get<std::int64_t>();
    const auto count = static_cast<std::uint64_t>(reader.Get<std::int64_t>());
    offered.push_back({std::move(name), std::move(dtype), layout.From(begin), count});
  }
  return offered;
}

Result<ShardPlan> Plan(Collectives& processes, const NamedState& own) {
  PENSTOCK_TRY(std::string offer, Offer(own));
  PENSTOCK_TRY(const std::vector<std::string> all, processes.AllGather(std::move(offer)));
  std::vector<std::vector<OfferedPiece>> offers;
  for (const std::string& one : all) offers.push_back(ReadOffer(one));
  return PlanShards(offers);
}

// Creates an empty folder in place of what a killed process may have left. A link is the user's.
Status CreateFolder(const std::string& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    return InvalidArgument("cannot create the folder {}: there is a link of this name: move it",
                           path);
  }
  RemoveCheckpoint(path);
  fs::create_directory(path, error);
  if (error) return InvalidArgument("cannot create the folder {}: {}", path, error.message());
  if (SyncFolderOf(path)) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write the folder of {}", path);
}

std::string ShardPath(const std::string& path, int process, int processes) {
  return fmt::format("{}/{}", path, ShardName(process, processes));
}

Result<WrittenShard> WriteOwnShard(const Collectives& processes, const std::string& path,
                                   const CheckpointInfo& info, const ShardPlan& plan,
                                   const NamedState& own) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return InvalidArgument("{} does not exist there: all processes must see the run's folder",
                           path);
  }
  std::vector<at::Tensor> values;  // own the bytes
  std::vector<std::string_view> bytes;
  for (const StatePiece& piece : own) {
    bytes.push_back(RawBytes(values.emplace_back(piece.values.to(at::kCPU).contiguous())));
  }
  return WriteShard(ShardPath(path, processes.process(), processes.processes()),
                    MetadataOf(ManifestOf(info)), plan, processes.process(), bytes);
}

std::string Serialize(const WrittenShard& shard) {
  ByteWriter writer;
  writer.Put(shard.file);
  for (const auto& blocks : shard.blocks) {
    writer.PutAll(std::span<const std::uint32_t>(blocks));
  }
  return writer.Take();
}

WrittenShard ParseShard(std::string_view bytes) {
  ByteReader reader(bytes);
  WrittenShard shard;
  shard.file = reader.Get<ManifestFile>();
  while (!reader.at_end()) shard.blocks.push_back(reader.GetAll<std::uint32_t>());
  return shard;
}

// Process 0 checks that it sees the shards of all processes, and writes the manifest.
Status Complete(const std::string& path, const CheckpointInfo& info, const ShardPlan& plan,
                const std::vector<std::string>& reports) {
  std::vector<WrittenShard> shards;
  for (const std::string& report : reports) shards.push_back(ParseShard(report));
  Manifest manifest = ManifestOf(info);
  AddShards(plan, shards, manifest);
  for (const auto& [name, file] : manifest.files) {
    std::error_code error;
    const std::string shard = fmt::format("{}/{}", path, name);
    if (fs::file_size(shard, error) == file.bytes && !error) continue;
    return MakeError(ErrorCode::kUnavailable,
                     "{} was written, but does not exist there: all processes must see the run's "
                     "folder",
                     shard);
  }
  const std::string text = FormatManifest(manifest);
  const std::string_view whole = text;
  return WriteFileDurably(fmt::format("{}/{}", path, kManifestName), {&whole, 1});
}

Status WriteAll(Collectives& processes, const std::string& path, const CheckpointInfo& info,
                const ShardPlan& plan, const NamedState& own) {
  PENSTOCK_TRY_STATUS(processes.All(processes.leads() ? CreateFolder(path) : Status()));
  const Result<WrittenShard> written = WriteOwnShard(processes, path, info, plan, own);
  PENSTOCK_TRY(const std::vector<std::string> reports,
               processes.ToLeader(Serialize(written.value_or(WrittenShard()))));
  PENSTOCK_TRY_STATUS(processes.All(written ? Status() : tl::unexpected(written.error())));
  return processes.All(processes.leads() ? Complete(path, info, plan, reports) : Status());
}

}  // namespace

Status WriteShards(Collectives& processes, const std::string& path, const CheckpointInfo& info,
                   const NamedState& own) {
  PENSTOCK_TRY(const ShardPlan plan, Plan(processes, own));
  // Process 0 decides, because another process may still see an older state of the folder.
  PENSTOCK_TRY(const bool exists, processes.Any(processes.leads() && IsCheckpointFolder(path)));
  if (exists) return {};
  Status status = WriteAll(processes, path, info, plan, own);
  if (!status && processes.leads()) RemoveCheckpoint(path);
  return status;
}

}  // namespace penstock
