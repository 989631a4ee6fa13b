// TCP sockets of connections between processes. No function is ended by a signal, and none raises
// SIGPIPE.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/system/own_time.h"

namespace penstock {

// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Where a process listens.
struct TcpAddress {
  std::string name;  // of a machine, or a numeric address
  int port = 0;
};
// Reads "node17:41234" or "[fe80::1]:41234". Errors: kInvalidArgument, quoting the text.
Result<TcpAddress> ParseTcpAddress(std::string_view text);
// The inverse.
std::string TcpAddressText(const TcpAddress& address);

// Listens on a port that the system chooses, at the address that `name` resolves to. Errors:
// kNotFound if it does not resolve, kUnavailable if it is no address of this machine.
Result<Socket> ListenTcp(const std::string& name);
// The port at which a socket listens.
int PortOf(const Socket& listener);

// Connects. The socket blocks and sends without delay. Errors: kNotFound if the name does not
// resolve, kUnavailable if nothing listens there, kDeadlineExceeded.
Result<Socket> ConnectTcp(const TcpAddress& address, OwnTimeLimit& limit);
// Accepts a connection that waits, as ConnectTcp returns them. Returns a closed socket if none
// does, and kUnavailable if the process has too many open files.
Result<Socket> AcceptTcp(const Socket& listener);

// Whether the other end is on this machine, reached by the loopback interface.
bool IsWithinMachine(const Socket& socket);

// The milliseconds for poll() until the limit's next look.
int PollTime(const OwnTimeLimit& limit);
// Writes all bytes of a small block. Returns false if the connection has ended.
bool SendAll(const Socket& socket, const void* data, std::size_t bytes);

// The system's text for an errno.
std::string ErrnoText(int error);

}  // namespace penstock
