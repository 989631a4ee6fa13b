#include "tcp/tcp_handshake.h"

#include <algorithm>

namespace penstock {

void TcpHello::SetMachine(std::string_view name) {
  machine = {};
  std::copy_n(name.begin(), std::min(name.size(), machine.size()), machine.begin());
}

std::string TcpHello::Machine() const {
  return {machine.data(), strnlen(machine.data(), machine.size())};
}

// The first text of each digest says what it is for, so that no proof can be used as another one.

void TcpProver::ProveConnecting(const TcpChallenge& challenge, TcpHello& hello) const {
  hello.proof = {};
  hello.proof = KeyedDigest(secret_, {"penstock connecting ", BytesOf(challenge), BytesOf(hello)});
}

void TcpProver::ProveAccepting(const TcpChallenge& challenge, const TcpHello& connecting,
                               TcpHello& hello) const {
  hello.proof = {};
  hello.proof = KeyedDigest(
      secret_, {"penstock accepting ", BytesOf(challenge), BytesOf(connecting), BytesOf(hello)});
}

bool TcpProver::IsProvenConnecting(const TcpChallenge& challenge, TcpHello hello) const {
  const TcpDigest proof = hello.proof;
  ProveConnecting(challenge, hello);
  return AreEqual(proof, hello.proof);
}

bool TcpProver::IsProvenAccepting(const TcpChallenge& challenge, const TcpHello& connecting,
                                  TcpHello hello) const {
  const TcpDigest proof = hello.proof;
  ProveAccepting(challenge, connecting, hello);
  return AreEqual(proof, hello.proof);
}

TcpDigest TcpProver::FrameKey(bool from_connecting, const TcpChallenge& challenge,
                              const TcpHello& connecting, const TcpHello& accepting) const {
  return KeyedDigest(secret_, {from_connecting ? "penstock frames 1 " : "penstock frames 2 ",
                               BytesOf(challenge), BytesOf(connecting), BytesOf(accepting)});
}

}  // namespace penstock
