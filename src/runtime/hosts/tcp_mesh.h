// The connections of one host to all others of a run.
//
// Each host connects to those with lower numbers. Both ends then send a hello, the accepting one
// only after it has checked the other's, and refuse an end that is not the expected host of the
// same run.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/tcp_listener.h"
#include "runtime/hosts/tcp_socket.h"

namespace penstock {

// What a host must know to connect to the others.
struct TcpRun {
  int host = 0;                        // the number of this one
  std::vector<std::string> addresses;  // by host, as in TcpListener
  // The same on all hosts of a run and on no other: processes that do not know it are refused. At
  // most 64 bytes. It is sent as it is, so it does not protect against those who can listen.
  std::string run;
  std::string machine;                     // the name of this machine, if known, for error messages
  std::chrono::milliseconds limit{60000};  // for all hosts to connect
};

struct TcpPeer {
  Socket socket;  // not open for this host itself
  std::string machine;
};

// Returns the connections by host. Collective. Errors: kInvalidArgument, kNotFound, kUnavailable or
// kDeadlineExceeded, with the host's number and address.
Result<std::vector<TcpPeer>> ConnectTcpMesh(const TcpListener& listener, const TcpRun& run);

}  // namespace penstock
