// own_model CONFIG [key=value]...: `penstock train` with an additional model.
#include <fmt/format.h>
#include <penstock/train/train.h>

#include <string>
#include <vector>

#include "mixer.h"

namespace {

penstock::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.empty())
    return penstock::InvalidArgument("there is no configuration; run own_model mixer.yaml");
  PENSTOCK_TRY_STATUS(penstock::AddModel(Mixer()));
  PENSTOCK_TRY(
      const penstock::TrainConfig config,
      penstock::LoadTrainConfig(arguments.front(), {arguments.begin() + 1, arguments.end()}));
  PENSTOCK_TRY(const penstock::TrainSummary summary, penstock::Train(config, {}));
  fmt::print("{} steps: held-out loss {:.3f} nats per byte, of a bigram {:.3f}\n", summary.steps,
             summary.held_out_loss, summary.baseline_loss);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  const penstock::Status status = Run({arguments + 1, arguments + count});
  if (status) return 0;
  fmt::print(stderr, "own_model: {}\n", status.error().line());
  return 1;
}
