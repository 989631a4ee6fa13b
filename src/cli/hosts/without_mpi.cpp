#include "cli/hosts/hosts.h"

namespace penstock {

Result<Hosts> OpenHosts() { return Hosts(); }

}  // namespace penstock
