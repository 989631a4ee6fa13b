// The costs of a model's chains (model_request.h), which need no file.
#include "cost_model/request/model_request.h"

namespace penstock {

Result<Costs> CostsOfChains(const ModelOnCluster& model, const PipelineDivision& division,
                            int replicas) {
  PENSTOCK_TRY(const ModelCosts of_model, CostsOfModel(model, division));
  return ChainsOf(of_model, replicas);
}

Costs ChainsOf(const ModelCosts& of_model, int replicas) {
  Costs costs;
  for (int replica = 0; replica < replicas; ++replica) {
    costs.stages.insert(costs.stages.end(), of_model.stages.begin(), of_model.stages.end());
    costs.by_slice.insert(costs.by_slice.end(), of_model.by_slice.begin(), of_model.by_slice.end());
  }
  costs.topology = of_model.topology;
  costs.comm = of_model.comm;
  costs.message_bytes = of_model.message_bytes;
  costs.overlap = {OverlapRule::Kind::kFactor, of_model.peak_part};  // the least time of a pair
  costs.transfers = of_model.transfers;
  costs.offload = costs.reload = of_model.offload;
  return costs;
}

}  // namespace penstock
