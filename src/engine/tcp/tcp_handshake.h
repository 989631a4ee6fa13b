// What two processes send each other first: challenge, hello, hello. See tcp_mesh.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tcp/tcp_keys.h"

namespace penstock {

inline constexpr std::uint64_t kTcpMagic =
    0x6b636f74736e6550;                          // "Penstock" where bytes have our order
inline constexpr std::uint32_t kTcpVersion = 2;  // of the handshake and the frames

// What the accepting process sends first. Its size never changes, so that versions can be compared.
struct TcpChallenge {
  std::uint64_t magic = kTcpMagic;
  std::uint64_t version = kTcpVersion;
  TcpDigest nonce = RandomBytes();
};
static_assert(sizeof(TcpChallenge) == 48);

struct TcpHello {
  std::int32_t processes = 0;
  std::int32_t from = 0;  // process
  std::int32_t to = 0;    // process
  std::uint32_t authenticate_frames = 0;
  std::array<char, 64> machine{};  // padded with zeros
  TcpDigest nonce = RandomBytes();
  TcpDigest proof{};  // that the sender knows the secret

  void SetMachine(std::string_view name);
  std::string Machine() const;
};
static_assert(sizeof(TcpHello) == 144);

// The secret of a run, and what follows from it for one connection.
class TcpProver {
 public:
  explicit TcpProver(std::string_view secret) : secret_(secret) {}

  void ProveConnecting(const TcpChallenge& challenge, TcpHello& hello) const;
  // `connecting` is the hello that is answered.
  void ProveAccepting(const TcpChallenge& challenge, const TcpHello& connecting,
                      TcpHello& hello) const;
  bool IsProvenConnecting(const TcpChallenge& challenge, TcpHello hello) const;
  bool IsProvenAccepting(const TcpChallenge& challenge, const TcpHello& connecting,
                         TcpHello hello) const;
  // The key of the frames from the connecting process, or of the frames to it.
  TcpDigest FrameKey(bool from_connecting, const TcpChallenge& challenge,
                     const TcpHello& connecting, const TcpHello& accepting) const;

 private:
  std::string_view secret_;
};

}  // namespace penstock
