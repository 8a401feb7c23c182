#include "core/replica/peer_handshake.h"

#include <fmt/format.h>

#include <algorithm>

namespace mortar::peer {
namespace {

constexpr std::string_view DIALING_LABEL = "mortarmq peer v1: dialing";
constexpr std::string_view ACCEPTING_LABEL = "mortarmq peer v1: accepting";
constexpr std::string_view NONCE_LABEL = "mortarmq peer v1: nonce";

struct Agreed {
    Hello hello;
    Challenge challenge;
    Lane lane = Lane::CONTROL;
    NodeId dialing;
    NodeId accepting;
};

ByteVector transcript(std::string_view label, const Agreed& agreed) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.u32(static_cast<std::uint32_t>(label.size()));
    writer.bytes(as_byte_span(label));
    writer.bytes(encode(agreed.hello));
    writer.bytes(encode(agreed.challenge));
    writer.u8(static_cast<std::uint8_t>(agreed.lane));
    writer.id(agreed.dialing);
    writer.id(agreed.accepting);
    return bytes;
}
Mac dialing_mac(const SecretKey& key, const Agreed& agreed) {
    return keyed_hash(key, transcript(DIALING_LABEL, agreed));
}
Mac accepting_mac(const SecretKey& key, const Agreed& agreed, const Identity& identity) {
    ByteVector bytes = transcript(ACCEPTING_LABEL, agreed);
    ByteWriter(bytes).bytes(encode(identity));
    return keyed_hash(key, bytes);
}

class Talk {
  public:
    Talk(Fiber& fiber, Conn& conn, PeerFrameReader& reader, MonoTime deadline)
        : fiber_(fiber), conn_(conn), reader_(reader), deadline_(deadline) {}

    template <class Message>
    Result<void> say(const Message& message) {
        const ByteVector frame = encode(message);
        const ByteSpan parts[] = {frame};
        return conn_.write(fiber_, parts, deadline_);
    }
    template <class Message>
    Result<Message> hear() {
        const Op wanted = OP_OF<Message>;
        const Result<FrameView> frame =
            reader_.read(fiber_, {HANDSHAKE_FRAME_LEN_MAX, deadline_, {}});
        if (!frame.ok()) {
            if (frame.is(ErrorCode::CANCELLED)) return frame.error();
            return make_error(frame.error().code,
                              fmt::format("no {}: {}", op_name(wanted), frame.error().detail));
        }
        if (frame->op != wanted) {
            return make_error(ErrorCode::MALFORMED_PAYLOAD,
                              fmt::format("{} instead of {}", op_name(frame->op), op_name(wanted)));
        }
        return decode<Message>(frame->payload);
    }

  private:
    Fiber& fiber_;
    Conn& conn_;
    PeerFrameReader& reader_;
    MonoTime deadline_;
};

Error wrong_key() {
    return make_error(ErrorCode::AUTH_FAILED,
                      "it does not know our auth/peer.key; the file must be the same on all nodes");
}
Error no_common_version(const HandshakeSelf& self, std::string_view others) {
    return make_error(ErrorCode::UNSUPPORTED_VERSION,
                      fmt::format("no common peer protocol version: this node speaks {} to {}, the "
                                  "other one {}; upgrade in smaller steps",
                                  self.version_min, self.identity.version_max, others));
}

Result<void> check_cluster(const HandshakeSelf& self, const Identity& other) {
    const ClusterId blank{};
    const ClusterId& own = self.identity.cluster_id;
    if (own == blank || other.cluster_id == blank || own == other.cluster_id) return {};
    return make_error(ErrorCode::INVALID_CONFIG,
                      fmt::format("it belongs to cluster {}, this node to {}; check peers, or the "
                                  "data_dir of that node",
                                  to_hex(other.cluster_id), to_hex(own)));
}

}  // namespace

Nonce make_nonce(const SecretKey& key, std::uint64_t first, std::uint64_t second) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.bytes(as_byte_span(NONCE_LABEL));
    writer.u64(first);
    writer.u64(second);
    return keyed_hash(key, bytes);
}

Result<HandshakeResult> handshake_dialing(Fiber& fiber, Conn& conn, PeerFrameReader& reader,
                                          const HandshakeSelf& self, NodeId dialed, Lane lane,
                                          MonoTime deadline) {
    Talk talk(fiber, conn, reader, deadline);
    Agreed agreed;
    agreed.hello = {self.version_min, self.identity.version_max, self.nonce};
    agreed.lane = lane;
    agreed.dialing = self.identity.node_id;
    agreed.accepting = dialed;
    MORTAR_TRY(talk.say(agreed.hello));
    agreed.challenge = MORTAR_TRY(talk.hear<Challenge>());
    const std::uint16_t version = agreed.challenge.version;
    if (version > self.identity.version_max)
        return no_common_version(self, fmt::format("{} and above", version));
    if (version < self.version_min)
        return no_common_version(self, fmt::format("{} and below", version));
    MORTAR_TRY(talk.say(Proof{agreed.dialing, dialed, lane, dialing_mac(self.key, agreed)}));

    Result<Welcome> heard = talk.hear<Welcome>();
    if (heard.is(ErrorCode::CONNECTION_CLOSED)) {
        return make_error(ErrorCode::AUTH_FAILED,
                          "it refused this node, and its log says why: another auth/peer.key, or "
                          "node_id and peers that do not go together");
    }
    if (!heard.ok()) return std::move(heard).error();
    Welcome welcome = std::move(heard).value();
    agreed.accepting = welcome.identity.node_id;
    if (!equal_constant_time(welcome.mac, accepting_mac(self.key, agreed, welcome.identity)))
        return wrong_key();
    if (welcome.identity.node_id != dialed) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          fmt::format("node {} answers at the address of node {}; check peers",
                                      welcome.identity.node_id.value, dialed.value));
    }
    MORTAR_TRY(check_cluster(self, welcome.identity));
    MORTAR_TRY(talk.say(self.identity));
    return HandshakeResult{lane, version, std::move(welcome.identity)};
}

Result<HandshakeResult> handshake_accepting(Fiber& fiber, Conn& conn, PeerFrameReader& reader,
                                            const HandshakeSelf& self,
                                            const std::function<bool(NodeId)>& is_peer,
                                            MonoTime deadline) {
    Talk talk(fiber, conn, reader, deadline);
    const NodeId own = self.identity.node_id;
    Agreed agreed;
    agreed.hello = MORTAR_TRY(talk.hear<Hello>());
    agreed.accepting = own;
    const Hello& hello = agreed.hello;
    agreed.challenge.nonce = self.nonce;
    agreed.challenge.version = std::min(hello.version_max, self.identity.version_max);
    if (agreed.challenge.version < std::max(hello.version_min, self.version_min)) {
        // A version that the other side cannot speak tells it why.
        const bool too_old = hello.version_max < self.version_min;
        agreed.challenge.version = too_old ? self.version_min : self.identity.version_max;
        MORTAR_TRY(talk.say(agreed.challenge));
        return no_common_version(self,
                                 fmt::format("{} to {}", hello.version_min, hello.version_max));
    }
    MORTAR_TRY(talk.say(agreed.challenge));

    const Proof proof = MORTAR_TRY(talk.hear<Proof>());
    agreed.lane = proof.lane;
    agreed.dialing = proof.node_id;
    agreed.accepting = proof.dialed_node_id;
    if (!equal_constant_time(proof.mac, dialing_mac(self.key, agreed))) return wrong_key();
    if (proof.node_id == own || !is_peer(proof.node_id)) {
        return make_error(
            ErrorCode::INVALID_CONFIG,
            fmt::format("it says that it is node {}, which is {}; check node_id and peers there",
                        proof.node_id.value, proof.node_id == own ? "this node" : "not in peers"));
    }
    agreed.accepting = own;
    // Whoever dialed another node by this address reads here who answers.
    MORTAR_TRY(talk.say(Welcome{accepting_mac(self.key, agreed, self.identity), self.identity}));
    if (proof.dialed_node_id != own) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          fmt::format("node {} dialed node {}, this is node {}; check peers there",
                                      proof.node_id.value, proof.dialed_node_id.value, own.value));
    }
    Identity identity = MORTAR_TRY(talk.hear<Identity>());
    if (identity.node_id != proof.node_id) {
        return make_error(ErrorCode::INVALID_CONFIG,
                          fmt::format("IDENTITY of node {} behind the PROOF of node {}",
                                      identity.node_id.value, proof.node_id.value));
    }
    MORTAR_TRY(check_cluster(self, identity));
    return HandshakeResult{proof.lane, agreed.challenge.version, std::move(identity)};
}

}  // namespace mortar::peer
