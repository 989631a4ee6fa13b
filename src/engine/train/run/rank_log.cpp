#include "train/run/rank_log.h"

#include <string>
#include <vector>

#include "base/byte_stream.h"
#include "base/index.h"
#include "base/log.h"
#include "base/system/machine_name.h"
#include "base/units.h"
#include "config/replicas.h"
#include "graph/device/device_queue.h"
#include "graph/run/program_replays.h"
#include "train/memory/shard_bytes.h"

namespace penstock {

Status LogMesh(const RunContext& run) {
  Collectives& processes = run.processes;
  const Mesh mesh = MeshOfPlanes(run.config.parallel, run.schedule);
  if (processes.processes() == 1 && mesh.replicas() == 1 && run.planes() == 1) return {};
  PENSTOCK_TRY(const std::vector<std::string> machines, processes.AllGather(MachineName()));
  Log(run.log(), "mesh: {} ranks = {}, {} process{}\n", mesh.ranks(), mesh.ToString(),
      processes.processes(), processes.processes() == 1 ? "" : "es");
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const int process = run.ranks.process_of(rank);
    Log(run.log(), "  rank {}: {}, process {} on {}\n", rank, mesh.PlacesOf(rank), process,
        machines[Index(process)]);
  }
  return {};
}

Status LogMemory(const RunContext& run, const Pipeline& pipeline) {
  if (pipeline.zero == 0) return {};
  ByteWriter writer;
  for (const int rank : run.ranks.here()) {
    const Pipeline& plane = pipeline.Plane(rank % run.planes());
    const RankShards* const held = plane.rank_shards[Index(rank / run.planes())].get();
    writer.Put(std::int64_t{rank});
    writer.Put(RankBytes{held->weights.peak(), held->gradients.peak(), held->optimizer.peak()});
  }
  PENSTOCK_TRY(const std::vector<std::string> all, run.processes.ToLeader(writer.Take()));
  if (!run.processes.leads()) return {};
  std::vector<RankBytes> measured(Index(run.ranks.ranks()));
  for (const std::string& bytes : all) {
    for (ByteReader reader(bytes); !reader.at_end();) {
      const auto rank = reader.Get<std::int64_t>();
      measured.at(Index(rank)) = reader.Get<RankBytes>();
    }
  }
  PENSTOCK_TRY(const std::vector<RankBytes> predicted, PredictRankBytes(run.config, run.schedule));
  Log(run.log(), "memory: the most that each rank held (predicted)\n");
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    const auto text = [&](std::int64_t RankBytes::*kind) {
      return fmt::format("{} ({})", FormatBytes(measured[rank].*kind),
                         FormatBytes(predicted[rank / Index(run.planes())].*kind));
    };
    Log(run.log(), "  rank {}: weights {}, gradients {}, optimizer {}\n", rank,
        text(&RankBytes::weights), text(&RankBytes::gradients), text(&RankBytes::optimizer));
  }
  return {};
}

Status LogDevice(const RunContext& run, const Pipeline& pipeline) {
  if (pipeline.device.is_cpu()) return {};
  std::string lines;
  if (const auto peak = PeakMemory(pipeline.device)) {
    lines =
        fmt::format("device {}: {} allocated at most\n", pipeline.device.str(), FormatBytes(*peak));
  }
  for (std::size_t rank = 0; rank < pipeline.recorders.size(); ++rank) {
    const RankRecorder* const recorder = pipeline.recorders[rank].get();
    if (recorder == nullptr) continue;
    lines += fmt::format("rank {}: graphs: {}, runs of graphs: {}\n", rank, recorder->recordings,
                         recorder->replays);
    for (const std::string& refusal : recorder->refusals) {
      lines += fmt::format("rank {} has no graph of {}\n", rank, refusal);
    }
  }
  PENSTOCK_TRY(const std::vector<std::string> all, run.processes.ToLeader(std::move(lines)));
  for (const std::string& of_process : all) Log(run.log(), "{}", of_process);
  return {};
}

}  // namespace penstock
