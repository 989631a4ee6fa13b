// EventFile: scalars in TensorBoard's format, for 'tensorboard --logdir FOLDER'.
//
// The file is a sequence of TFRecords, each a protobuf message tensorflow.Event. A resumed run
// writes a new file next to the earlier ones. Its first records tell TensorBoard at which step it
// starts, and TensorBoard drops what earlier files have of that step and later ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/append_file.h"
#include "base/result.h"

namespace penstock {

struct Scalar {
  std::string tag;  // TensorBoard groups tags by the part before the first '/'
  double value = 0;
};

// Not thread-safe. Errors: kUnavailable if the file cannot be written.
class EventFile {
 public:
  // `first_step` is the step of the first Append. The first Append creates the file in `folder`.
  EventFile(std::string folder, std::int64_t first_step);

  Status Append(std::int64_t step, std::span<const Scalar> scalars);

  const std::string& path() const { return file_.path(); }
  bool is_open() const { return file_.is_open(); }

 private:
  AppendFile file_;
  std::int64_t first_step_;
};

}  // namespace penstock
