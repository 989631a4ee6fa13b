// What stands between a batch's gradients and the optimizer: how large they may be, all together,
// and whether a stage waits to know it.
#pragma once

#include <string>

namespace penstock {

struct UpdateRule {
  // Largest norm of all gradients together: larger ones are scaled down to it. 0: any.
  double clip = 0;
  // A batch with a gradient that is not finite leaves the weights as they are; else it fails the
  // run.
  bool skip_nonfinite = false;
  // A stage steps as soon as it has its gradients, and the verdict comes in the next step, before
  // its backward begins; a step that should have been another is taken back and made again, with
  // the forwards behind it (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 4).
  bool post_validation = false;

  bool needs_norm() const { return clip > 0 || skip_nonfinite; }
  bool steps_early() const { return post_validation && needs_norm(); }

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

// What becomes of one update, the same on every rank.
struct Verdict {
  double norm = 0;    // of all gradients, before they are scaled
  double scale = 1;   // what they are multiplied by
  bool apply = true;  // false: the weights stay as they are

  bool unchanged() const { return apply && scale == 1; }
};

// Throws std::runtime_error: a gradient that is not finite fails the run.
[[noreturn]] void FailOnNonFinite(const std::string& parameter);

// Throws std::runtime_error where a norm that is not finite fails the run.
Verdict Judge(const UpdateRule& rule, double squared_norm);

}  // namespace penstock
