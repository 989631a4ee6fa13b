#include "tcp/tcp_socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <system_error>

#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> Resolve(const TcpAddress& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.name.c_str(), port.c_str(), &hints, &found);
  if (error == 0) return AddressList(found, &freeaddrinfo);
  return NotFound("cannot resolve {}: {}", Quote(address.name),
                  error == EAI_SYSTEM ? ErrnoText(errno) : gai_strerror(error));
}

// Returns whether the socket gets ready within the limit.
bool WaitFor(const Socket& socket, short events, OwnTimeLimit& limit) {
  for (;;) {
    pollfd waits{socket.fd(), events, 0};
    const int ready = poll(&waits, 1, PollTime(limit));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (limit.IsOver()) return false;
  }
}

void SetOption(const Socket& socket, int level, int option) {
  const int on = 1;
  setsockopt(socket.fd(), level, option, &on, sizeof(on));
}

void SetUp(const Socket& socket) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY);
  fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
}

// Returns 0 or an errno.
int Connect(const Socket& socket, const addrinfo& to, OwnTimeLimit& limit) {
  if (connect(socket.fd(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!WaitFor(socket, POLLOUT, limit)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// Returns 0 or an errno.
int Listen(const Socket& socket, const addrinfo& at) {
  if (bind(socket.fd(), at.ai_addr, at.ai_addrlen) != 0) return errno;
  return listen(socket.fd(), SOMAXCONN) == 0 ? 0 : errno;
}

Socket Open(const addrinfo& of) {
  return Socket(socket(of.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
}

}  // namespace

Socket::~Socket() {
  if (is_open()) close(fd_);
}

Result<TcpAddress> ParseTcpAddress(std::string_view text) {
  constexpr int kMostPort = 65535;
  const std::size_t colon = text.rfind(':');
  std::string_view name = text.substr(0, std::min(colon, text.size()));
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  const Result<int> port =
      colon == std::string_view::npos ? Result<int>(0) : ParseInt(text.substr(colon + 1));
  if (!name.empty() && port && *port > 0 && *port <= kMostPort) {
    return TcpAddress{std::string(name), *port};
  }
  return InvalidArgument("{} is not an address: write NAME:PORT", Quote(text));
}

std::string TcpAddressText(const TcpAddress& address) {
  const bool is_ipv6 = address.name.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", address.name, address.port)
                 : fmt::format("{}:{}", address.name, address.port);
}

Result<Socket> ListenTcp(const std::string& name) {
  PENSTOCK_TRY(const AddressList found, Resolve({name, 0}, AI_PASSIVE));
  int error = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Socket socket = Open(*each);
    error = socket.is_open() ? Listen(socket, *each) : errno;
    if (error == 0) return socket;
  }
  return MakeError(ErrorCode::kUnavailable, "cannot listen at {}: {}", Quote(name),
                   ErrnoText(error));
}

int PortOf(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getsockname(listener.fd(), generic, &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<Socket> ConnectTcp(const TcpAddress& address, OwnTimeLimit& limit) {
  PENSTOCK_TRY(const AddressList found, Resolve(address, 0));
  int error = 0;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Socket socket = Open(*each);
    error = socket.is_open() ? Connect(socket, *each, limit) : errno;
    if (error != 0) continue;
    SetUp(socket);
    return socket;
  }
  return MakeError(error == ETIMEDOUT ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                   "cannot connect: {}", ErrnoText(error));
}

Result<Socket> AcceptTcp(const Socket& listener) {
  Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (socket.is_open()) {
    SetUp(socket);
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
    return MakeError(ErrorCode::kUnavailable, "cannot accept a connection: {}", ErrnoText(errno));
  }
  return socket;
}

bool IsWithinMachine(const Socket& socket) {
  constexpr std::uint32_t kLoopbackNetwork = 127;  // 127.0.0.0/8
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(socket.fd(), generic, &size) != 0) return false;
  if (address.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr);
  }
  const auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&address);
  return address.ss_family == AF_INET && ntohl(ipv4->sin_addr.s_addr) >> 24U == kLoopbackNetwork;
}

int PollTime(const OwnTimeLimit& limit) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(limit.NextLook() - OwnTimeLimit::Clock::now());
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kMost));
}

bool SendAll(const Socket& socket, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket.fd(), at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace penstock
