// PythonStage: a stage whose forward and loss are Python functions of tensors.
//
// They run when the stage is captured, never during steps. Threads: any that does not hold the GIL.
#pragma once

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/engine/tensor_caster.h"
#include "model/model.h"
#include "model/sequence_context.h"

namespace penstock::python {

namespace nb = nanobind;

using Tensors = std::vector<at::Tensor>;
using TensorsByName = std::vector<std::pair<std::string, at::Tensor>>;

struct StageFunctions {
  nb::callable forward;  // list of tensors -> list of tensors
  // (list of outputs, list of targets) -> list of the loss and of reports, see
  // StageModule::LossAndReports; None unless a last stage.
  nb::object loss;
  nb::callable judge;  // tensor -> (refusal, is_followed), see ForeignTensor
};

class PythonStage final : public StageModule {
 public:
  // Trains `parameters`, which it shares with the Python module. Forward reads the current values
  // of `state`, and may update them.
  PythonStage(StageFunctions functions, const TensorsByName& parameters, TensorsByName state);
  ~PythonStage() override;
  PythonStage(const PythonStage&) = delete;
  PythonStage& operator=(const PythonStage&) = delete;

  at::Tensor forward(at::Tensor input) override { return ForwardAll({&input, 1}).front(); }
  Tensors ForwardAll(std::span<const at::Tensor> inputs) override;
  at::Tensor LossOfAll(std::span<const at::Tensor> outputs,
                       std::span<const at::Tensor> targets) override {
    return LossAndReports(outputs, targets).front();
  }
  Tensors LossAndReports(std::span<const at::Tensor> outputs,
                         std::span<const at::Tensor> targets) override;
  at::Tensor ForwardSlice(at::Tensor input, SequenceContext& context) override;
  bool HasForwardSlice() const override { return true; }
  TensorsByName StateTensors() const override { return state_; }
  // Returns the context of the thread's ForwardSlice; null outside of one.
  static SequenceContext* Slice();

 private:
  // Whether the caller of Pipeline.build can catch Python exceptions. Otherwise this is a rank's
  // thread, which captures the stage for inputs of another shape.
  bool IsBuilding() const { return std::this_thread::get_id() == builder_; }
  // Calls function(), which runs the user's code under capture.
  template <class Function>
  auto RunUserCode(Function&& function);

  const std::thread::id builder_ = std::this_thread::get_id();
  StageFunctions functions_;
  TensorsByName state_;
};

}  // namespace penstock::python
