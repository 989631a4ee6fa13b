#include "tcp/tcp_listener.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <optional>
#include <string_view>

#include "base/system/machine_name.h"

namespace penstock {
namespace {

constexpr const char* kThisMachineOnly = "127.0.0.1";

// Returns nothing for an address other than IPv4 and IPv6, and for IPv6 addresses of a link, which
// mean another machine elsewhere.
std::optional<std::string> NumericAddress(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  const bool is_ipv6 = address->sa_family == AF_INET6;
  if (!is_ipv6 && address->sa_family != AF_INET) return std::nullopt;
  if (is_ipv6 &&
      IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)) {
    return std::nullopt;
  }
  std::string text(NI_MAXHOST, '\0');
  const socklen_t size = is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  text.resize(text.find('\0'));
  return text;
}

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

// Returns the address of the network interface, IPv4 if it has one. An empty name: of the first
// interface that others can reach.
std::optional<std::string> AddressOfInterface(std::string_view name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  std::optional<std::string> ipv6;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    auto address = NumericAddress(each->ifa_addr);
    const bool is_up = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_RUNNING) != 0;
    if (!address || (name.empty() ? !is_up || IsLoopback(*address) : name != each->ifa_name)) {
      continue;
    }
    if (each->ifa_addr->sa_family == AF_INET) return address;
    if (!ipv6) ipv6 = address;
  }
  return ipv6;
}

std::optional<std::string> AddressOfMachine() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  if (getaddrinfo(MachineName().c_str(), nullptr, &hints, &all) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(all, &freeaddrinfo);
  for (const addrinfo* each = all; each != nullptr; each = each->ai_next) {
    auto address = NumericAddress(each->ai_addr);
    if (address && !IsLoopback(*address)) return address;
  }
  return std::nullopt;
}

Result<TcpListener> ListenAt(const std::string& name) {
  PENSTOCK_TRY(Socket socket, ListenTcp(name));
  const int port = PortOf(socket);
  return TcpListener{std::move(socket), TcpAddressText({name, port})};
}

}  // namespace

Result<TcpListener> OpenTcpListener(const std::string& at) {
  if (!at.empty()) {
    const auto of_interface = AddressOfInterface(at);
    auto listener = ListenAt(of_interface.value_or(at));
    if (listener) return listener;
    return MakeError(listener.error().code,
                     "{}: give a network interface, name or address of this machine",
                     listener.error().line());
  }
  // The machine's name may resolve to an address that it no longer has.
  if (const auto of_machine = AddressOfMachine()) {
    if (auto listener = ListenAt(*of_machine)) return listener;
  }
  return ListenAt(AddressOfInterface("").value_or(kThisMachineOnly));
}

}  // namespace penstock
