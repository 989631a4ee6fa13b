// What a stage keeps of a microbatch in flight. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "train/offload/activation_pool.h"
#include "train/stage/bound_program.h"

namespace penstock {

// What has run of a microbatch. Each action requires a certain phase.
enum class MicrobatchPhase : std::uint8_t { kEmpty, kForwardDone, kInputDone };

inline const char* PhaseName(MicrobatchPhase phase) {
  switch (phase) {
    case MicrobatchPhase::kEmpty:
      return "is not in flight";
    case MicrobatchPhase::kForwardDone:
      return "is between F and its backward";
    case MicrobatchPhase::kInputDone:
      return "is between I and W";
  }
  return "";
}

struct MicrobatchState {
  MicrobatchPhase phase = MicrobatchPhase::kEmpty;
  BoundProgram* bound = nullptr;      // the program for its shape
  std::vector<at::Tensor> slots;      // values that it keeps alive
  ActivationPool::Transfer transfer;  // to and from the pool
};

}  // namespace penstock
