#include <array>

#include "calibrate/formats/format.h"

namespace penstock {

std::span<const RunFormat> RunFormats() {
  static const std::vector<RunFormat> formats = {
      {"vTrain",
       {"gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "sequence", "tensor",
        "data", "pipeline", "iteration_ms"},
       &ReadVtrainRow},
      {"NeMo",
       {"model", "seq", "tp", "pp", "cp", "mbs", "gbs", "gpus", "time_per_step_s"},
       &ReadNemoRow},
      {"Aceso and Mist",
       {"gpu", "measured_iter_ms", "layers", "hidden", "heads", "seq", "gbs", "mbs", "pp",
        "gpus_per_stage", "recompute", "tp_first_op", "dp_first_op"},
       &ReadAcesoRow},
      {"Megatron-Bridge",
       {"release", "task", "model", "system", "gpus", "precision", "gbs", "mbs", "seq", "fsdp",
        "tp", "pp", "cp", "vp", "ep", "tok_s_gpu"},
       &ReadMegatronBridgeRow,
       {"model", "device", "release"}},
      {"Megatron-LM's tests",
       {"test", "platform", "iter_s_median", "mem_max_bytes", "num-layers", "hidden-size"},
       &ReadMegatronTestsRow},
  };
  return formats;
}

Result<int> MicrobatchesOf(const CsvRow& row, std::string_view column, int micro_batch,
                           int replicas) {
  PENSTOCK_TRY(const int global_batch, row.Count(column));
  const std::int64_t per_step = std::int64_t{1} * micro_batch * replicas;
  if (global_batch % per_step == 0) return static_cast<int>(global_batch / per_step);
  return RefuseCell(row, column,
                    fmt::format("{} replicas of microbatches of {} samples do not divide it",
                                replicas, micro_batch));
}

}  // namespace penstock
