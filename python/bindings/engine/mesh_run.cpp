#include "bindings/engine/mesh_run.h"

#include <fmt/format.h>

#include <utility>

namespace penstock::python {

MeshRun::MeshRun(std::shared_ptr<ProcessGroup> everyone, std::shared_ptr<ProcessGroup> plane,
                 std::chrono::milliseconds timeout)
    : everyone_(std::move(everyone)),
      plane_(std::move(plane)),
      collectives_(std::make_shared<C10dRun>(
          timeout,
          [everyone = everyone_](const Error& reason) {
            const bool has_process = reason.message.find("process ") != std::string::npos;
            Error named = reason;
            if (!has_process) {
              named.message =
                  fmt::format("{}: {}", everyone->NameOf(everyone->process()), reason.message);
            }
            everyone->Abort(named);
          })),
      channel_(std::make_unique<Channel>(*everyone_)) {
  channel_->Open([](int, const FrameTag&, const Message&) {},
                 [this](const Error& reason) {
                   if (plane_) plane_->Abort(reason);  // sends the reason before a wait ends
                   collectives_->Abort(reason);
                 });
}

Status MeshRun::status() const {
  if (everyone_->aborted()) return tl::unexpected(everyone_->reason());
  return {};
}

}  // namespace penstock::python
