// Writes checkpoints of a few tensors, without torch and processes.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "checkpoint/shard.h"
#include "checkpoint/shard_plan.h"
#include "tests/engine/train/temp_folder.h"

namespace penstock {

// Elements of a tensor that a process saves.
struct SavedPart {
  SavedPart(std::string tensor, Layout part, std::vector<float> elements)
      : name(std::move(tensor)), layout(std::move(part)), values(std::move(elements)) {}
  // The elements of the flattened tensor from `begin` on.
  SavedPart(std::string tensor, std::vector<std::int64_t> shape, std::int64_t begin,
            std::vector<float> elements)
      : SavedPart(std::move(tensor), Layout(std::move(shape)).From(begin), std::move(elements)) {}

  std::string name;
  Layout layout;
  std::vector<float> values;
};

inline std::string_view BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

inline Manifest SmallManifest() {
  Manifest manifest;
  manifest.step = 7;
  manifest.seconds = 1.5;
  manifest.config = "name: small\n";
  return manifest;
}

// Writes a checkpoint to a new folder. `processes` is what each process saves.
inline Manifest WriteSmallCheckpoint(const std::string& path,
                                     const std::vector<std::vector<SavedPart>>& processes) {
  std::vector<std::vector<OfferedPiece>> offers(processes.size());
  for (std::size_t process = 0; process < processes.size(); ++process) {
    for (const SavedPart& each : processes[process]) {
      offers[process].push_back({each.name, "F32", each.layout, each.values.size()});
    }
  }
  const ShardPlan plan = PlanShards(offers).value();
  std::filesystem::create_directories(path);
  Manifest manifest = SmallManifest();
  std::vector<WrittenShard> shards;
  for (std::size_t process = 0; process < processes.size(); ++process) {
    std::vector<std::string_view> bytes;
    for (const SavedPart& each : processes[process]) bytes.push_back(BytesOf(each.values));
    const int index = static_cast<int>(process);
    const std::string file = path + "/" + ShardName(index, static_cast<int>(processes.size()));
    shards.push_back(WriteShard(file, MetadataOf(manifest), plan, index, bytes).value());
  }
  AddShards(plan, shards, manifest);
  EXPECT_TRUE(WriteFileAtomically(path + "/" + kManifestName, FormatManifest(manifest)));
  return manifest;
}

inline std::vector<float> Ascending(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  for (float& value : values) value = first++;
  return values;
}

// Changes one bit of a file.
inline void FlipBit(const std::string& path, std::size_t byte) {
  std::string content = ReadFile(path).value();
  content.at(byte) = static_cast<char>(content[byte] ^ 1);
  EXPECT_TRUE(WriteFileAtomically(path, content));
}

}  // namespace penstock
