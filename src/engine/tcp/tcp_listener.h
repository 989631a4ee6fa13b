// TcpListener: where this process waits for the connections of others.
#pragma once

#include <string>

#include "base/result.h"
#include "tcp/tcp_socket.h"

namespace penstock {

struct TcpListener {
  Socket socket;
  std::string address;  // "10.0.0.7:41234", for the other processes
};

// Listens on a port that the system chooses. `at` is a network interface ("eth0"), or a name or
// numeric address of this machine. If it is empty, the address is the one that the machine's name
// resolves to, unless others cannot reach that, else the one of the first network interface, else
// 127.0.0.1. Errors: kNotFound or kUnavailable, quoting `at`.
Result<TcpListener> OpenTcpListener(const std::string& at = "");

}  // namespace penstock
