#include "train/run/memory_log.h"

#include <string>
#include <vector>

#include "base/byte_stream.h"
#include "base/index.h"
#include "base/log.h"
#include "base/units.h"
#include "train/memory/shard_bytes.h"

namespace penstock {

Status LogMemory(Collectives& processes, const TrainConfig& config, const Schedule& schedule,
                 const Pipeline& pipeline, std::FILE* log) {
  if (pipeline.zero == 0) return {};
  ByteWriter writer;
  for (std::size_t rank = 0; rank < pipeline.rank_shards.size(); ++rank) {
    const RankShards* const held = pipeline.rank_shards[rank].get();
    if (held == nullptr) continue;
    writer.Put(static_cast<std::int64_t>(rank));
    writer.Put(RankBytes{held->weights.peak(), held->gradients.peak(), held->optimizer.peak()});
  }
  PENSTOCK_TRY(const std::vector<std::string> all, processes.ToLeader(writer.Take()));
  if (!processes.leads()) return {};
  std::vector<RankBytes> measured(pipeline.rank_shards.size());
  for (const std::string& bytes : all) {
    for (ByteReader reader(bytes); !reader.at_end();) {
      const auto rank = reader.Get<std::int64_t>();
      measured.at(Index(rank)) = reader.Get<RankBytes>();
    }
  }
  PENSTOCK_TRY(const std::vector<RankBytes> predicted, PredictRankBytes(config, schedule));
  Log(log, "memory: the most that each rank held (predicted)\n");
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    const auto text = [&](std::int64_t RankBytes::*kind) {
      return fmt::format("{} ({})", FormatBytes(measured[rank].*kind),
                         FormatBytes(predicted[rank].*kind));
    };
    Log(log, "  rank {}: weights {}, gradients {}, optimizer {}\n", rank, text(&RankBytes::weights),
        text(&RankBytes::gradients), text(&RankBytes::optimizer));
  }
  return {};
}

}  // namespace penstock
