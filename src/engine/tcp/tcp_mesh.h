// The connections of one process to all others of a run.
//
// Each process connects to those with lower numbers. Both ends prove that they know the run's
// secret without sending it: the accepting process sends a challenge, the connecting one a hello
// with a proof for this challenge, and then the accepting one a hello with a proof for that hello.
// So nobody else can take a process's place, not even with a copy of everything that was ever sent.
//
// Connections that leave the machine authenticate each frame, too, because whoever forwards packets
// could add to them. Nothing is encrypted.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tcp/tcp_keys.h"
#include "tcp/tcp_listener.h"
#include "tcp/tcp_socket.h"

namespace penstock {

// What a process must know to connect to the others.
struct TcpRun {
  int process = 0;                     // the number of this one
  std::vector<std::string> addresses;  // by process, as in TcpListener
  // Every process of a run has the same secret, which nobody else knows: at least kLeastSecret
  // bytes that cannot be guessed. It is never sent.
  std::string secret;
  std::string machine;                     // the name of this machine, if known, for error messages
  std::chrono::milliseconds limit{60000};  // for all processes to connect
  bool authenticate_frames = false;        // also within this machine
};
inline constexpr std::size_t kLeastSecret = 16;  // bytes

struct TcpPeer {
  Socket socket;  // not open for this process itself
  std::string machine;
  // They tag the frames of each direction; null if frames are not authenticated.
  std::unique_ptr<BlockTagger> sent, received;
};

// Returns the connections by process. Collective. Errors: kInvalidArgument, kNotFound, kUnavailable
// or kDeadlineExceeded, with the process's number and address.
Result<std::vector<TcpPeer>> ConnectTcpMesh(const TcpListener& listener, const TcpRun& run);

}  // namespace penstock
