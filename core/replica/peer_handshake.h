// peer_handshake: two nodes prove to each other that they know auth/peer.key, and agree on a version.
// Shape:    HELLO >, < CHALLENGE, PROOF >, < WELCOME, IDENTITY >. Each proof is a keyed hash over the role, HELLO, CHALLENGE
//           (so both nonces and the version), lane and both node ids; that of the accepting side over its identity too. The
//           roles differ, so that a proof which is sent back proves nothing; the nonces are new, so that an old one does not.
//           A stranger gets CHALLENGE, which tells a nonce and a version, and nothing else.
// Owns:     nothing; reader and conn are borrowed for the call.
// Errors:   AUTH_FAILED (the key differs), UNSUPPORTED_VERSION, INVALID_CONFIG (a node that does not belong here), BAD_LENGTH,
//           CHECKSUM_MISMATCH, UNKNOWN_OP, MALFORMED_PAYLOAD, TIMED_OUT, CONNECTION_CLOSED, CANCELLED; the detail is for the log.
// Suspends: both.
// Source:   design 4, contract 4 (peer.key), F6 (versions).
#pragma once

#include <functional>

#include "core/base/hash.h"
#include "core/env/clock.h"
#include "core/replica/peer_frame.h"

namespace mortar::peer {

inline constexpr Duration HANDSHAKE_TIMEOUT = seconds(3);
inline constexpr std::uint32_t HANDSHAKE_FRAME_LEN_MAX = 4 * 1024;

struct HandshakeSelf {
    const SecretKey& key;
    Identity identity;
    std::uint16_t version_min = PEER_VERSION_MIN;  // the maximum stands in identity
    Nonce nonce{};                                 // never used before
};
struct HandshakeResult {
    Lane lane = Lane::CONTROL;
    std::uint16_t version = PEER_VERSION_MAX;
    Identity identity;  // the other node's
};

// A nonce that strangers cannot foresee, from numbers that only have to differ.
Nonce make_nonce(const SecretKey& key, std::uint64_t first, std::uint64_t second);

Result<HandshakeResult> handshake_dialing(Fiber& fiber, Conn& conn, PeerFrameReader& reader,
                                          const HandshakeSelf& self, NodeId dialed, Lane lane,
                                          MonoTime deadline);
// is_peer: the nodes that may come.
Result<HandshakeResult> handshake_accepting(Fiber& fiber, Conn& conn, PeerFrameReader& reader,
                                            const HandshakeSelf& self,
                                            const std::function<bool(NodeId)>& is_peer,
                                            MonoTime deadline);

}  // namespace mortar::peer
