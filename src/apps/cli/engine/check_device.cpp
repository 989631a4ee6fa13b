// penstock check-device: whether a device trains as the CPU does.

#include <nlohmann/json.hpp>

#include "cli/definitions/definitions.h"
#include "cli/output/print_json.h"
#include "train/check/device_check.h"

namespace penstock {
namespace {

class CheckDeviceCommand final : public EngineRun<CheckDeviceDefinition> {
 public:
  Result<int> Run() override {
    int passed = 0, all = 0;
    nlohmann::ordered_json checks = nlohmann::ordered_json::array();
    PENSTOCK_TRY_STATUS(CheckDevice(device_, [&](const DeviceCheck& check) {
      ++all;
      passed += check.passed() ? 1 : 0;
      if (json_) {
        checks.push_back(ToJson(check));
      } else {
        Print(check);
      }
    }));
    if (json_) {
      PrintObject({{"device", device_},
                   {"torch", TorchVersion()},
                   {"passed", passed},
                   {"checks", std::move(checks)}});
    } else {
      fmt::print("{} of {} checks passed on {}, with PyTorch {}\n", passed, all, device_,
                 TorchVersion());
    }
    return passed == all ? kExitOk : kExitFailed;
  }

 private:
  static nlohmann::ordered_json ToJson(const DeviceCheck& check) {
    nlohmann::ordered_json json = {{"name", check.name}, {"passed", check.passed()}};
    if (!check.error.empty()) {
      json["error"] = check.error;
    } else {
      json["relative_difference"] = check.difference;
      json["limit"] = check.limit;
      json["seconds"] = check.seconds;
    }
    return json;
  }

  static void Print(const DeviceCheck& check) {
    const char* const mark = check.passed() ? "ok" : "FAILED";
    if (check.error.empty()) {
      fmt::print("{:<7} {:<28} {:.1e}  {:.2f} s\n", mark, check.name, check.difference,
                 check.seconds);
    } else {
      fmt::print("{:<7} {:<28} {}\n", mark, check.name, check.error);
    }
    static_cast<void>(std::fflush(stdout));
  }
};

}  // namespace

std::unique_ptr<Command> MakeCheckDeviceCommand() { return std::make_unique<CheckDeviceCommand>(); }

}  // namespace penstock
