// The forms of a collective op: whole, NAME_start and NAME_wait (collective.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdint>
#include <string>

#include "graph/ops/collective_endpoint.h"

namespace penstock {

// Declares the three forms. `arguments` are the op's arguments between x and the group, such as
// "int ranks, ".
inline void DefineCollective(torch::Library& library, const std::string& name,
                             const std::string& arguments) {
  library.def((name + "(Tensor x, " + arguments + "int group) -> Tensor").c_str());
  library.def((name + "_start(Tensor x, " + arguments + "int group) -> Tensor").c_str());
  library.def(
      (name + "_wait(Tensor ticket, Tensor x, " + arguments + "int group) -> Tensor").c_str());
}

// The kernels of an op that has the arguments Args between x and the group. Kernel derives from it
// and has kName and these functions, which are called with a group that is in use:
//   Empty(x, args...)              the result without values
//   StartOn(group, x, args...)     starts the collective, and returns its ticket
//   WaitOn(group, ticket)          returns the result
template <class Kernel, class... Args>
struct CollectiveForms {
  static at::Tensor WholeShape(const at::Tensor& x, Args... args, std::int64_t) {
    return Kernel::Empty(x, args...);
  }
  static at::Tensor StartShape(const at::Tensor& x, Args..., std::int64_t) {
    return at::empty({1}, x.options().dtype(at::kLong));
  }
  static at::Tensor WaitShape(const at::Tensor&, const at::Tensor& x, Args... args, std::int64_t) {
    return Kernel::Empty(x, args...);
  }

  static at::Tensor Start(const at::Tensor& x, Args... args, std::int64_t group) {
    at::Tensor ticket = at::empty({1}, at::TensorOptions().dtype(at::kLong));
    auto& number = *ticket.mutable_data_ptr<std::int64_t>();
    number = -1;
    if (!CollectivesDisabled()) number = Kernel::StartOn(group, x, args...);
    return ticket;
  }
  static at::Tensor Wait(const at::Tensor& ticket, const at::Tensor& x, Args... args,
                         std::int64_t group) {
    if (CollectivesDisabled()) return Kernel::Empty(x, args...).zero_();
    return Kernel::WaitOn(group, *ticket.const_data_ptr<std::int64_t>());
  }
  static at::Tensor Whole(const at::Tensor& x, Args... args, std::int64_t group) {
    const at::Tensor sent = x.contiguous();
    return Wait(Start(sent, args..., group), sent, args..., group);
  }

  static void Register(torch::Library& library) {
    library.impl(Kernel::kName, Whole);
    library.impl(NameOfHalf("_start").c_str(), Start);
    library.impl(NameOfHalf("_wait").c_str(), Wait);
  }
  static void RegisterShapes(torch::Library& library) {
    library.impl(Kernel::kName, WholeShape);
    library.impl(NameOfHalf("_start").c_str(), StartShape);
    library.impl(NameOfHalf("_wait").c_str(), WaitShape);
  }

 private:
  static std::string NameOfHalf(const char* half) { return std::string(Kernel::kName) + half; }
};

}  // namespace penstock
