// Fitted constants as a file of a machine.
#pragma once

#include <string>

#include "calibrate/fit/fit.h"
#include "scenario/machine/machine_file.h"

namespace penstock {

// Returns a value of the constant, or its error, as people read it: "0.5221", "4.1us".
std::string ConstantText(const ConstantValue& constant, double value);

// Values that differ by release are in the order of their releases, so that the newest is the last.
MachineFile FittedMachine(const Fit& fit, const std::string& path);

}  // namespace penstock
