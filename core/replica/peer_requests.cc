#include "core/replica/peer_requests.h"

#include <utility>

#include "core/fiber/deadline.h"

namespace mortar {
namespace {

// More than one, or the first of another length: the peer's snapshot changed in between, from the start again.
constexpr int SNAPSHOT_ATTEMPTS_MAX = 5;

Error failed_there(peer::FetchOutcome outcome) {
    switch (outcome) {
        case peer::FetchOutcome::NO_SUCH_LOG:
            return make_error(ErrorCode::NOT_FOUND, "the peer has no such log");
        case peer::FetchOutcome::BELOW_SNAPSHOT:
            return make_error(ErrorCode::NOT_FOUND, "the peer has a snapshot instead");
        case peer::FetchOutcome::DAMAGED:
            return make_error(ErrorCode::DAMAGED, "the peer's copy is damaged there");
        default:
            return make_error(ErrorCode::IO_ERROR, "the peer could not read it");
    }
}

}  // namespace

Result<FetchedRecords> PeerRequests::fetch(Fiber& fiber, NodeId node, LeaderEpoch leader_epoch,
                                           PartitionKey log, Sequence from, Sequence through) {
    peer::Fetch request;
    request.request_id = ++last_request_id_;
    request.leader_epoch = leader_epoch;
    request.log = log;
    request.from = from;
    request.through = through;
    request.bytes_max = FETCH_BYTES_MAX;
    const ByteVector payload =
        MORTAR_TRY(ask(fiber, node, peer::Op::FETCHED, request.request_id, peer::encode(request)));
    const peer::Fetched reply = MORTAR_TRY(peer::decode<peer::Fetched>(payload));
    FetchedRecords fetched;
    if (reply.outcome == peer::FetchOutcome::BELOW_SNAPSHOT) {
        fetched.is_below_snapshot = true;
        return fetched;
    }
    if (reply.outcome != peer::FetchOutcome::OK) return failed_there(reply.outcome);
    fetched.bytes.assign(reply.records.begin(), reply.records.end());
    return fetched;
}

Result<LogEnd> PeerRequests::epoch_end(Fiber& fiber, NodeId node, LeaderEpoch leader_epoch,
                                       PartitionKey log, LeaderEpoch at_most) {
    peer::EpochEnd request;
    request.request_id = ++last_request_id_;
    request.leader_epoch = leader_epoch;
    request.log = log;
    request.at_most = at_most;
    const ByteVector payload = MORTAR_TRY(
        ask(fiber, node, peer::Op::EPOCH_END_REPLY, request.request_id, peer::encode(request)));
    const peer::EpochEndReply reply = MORTAR_TRY(peer::decode<peer::EpochEndReply>(payload));
    if (reply.outcome != peer::FetchOutcome::OK) return failed_there(reply.outcome);
    return reply.end;
}

Result<MetadataSnapshot> PeerRequests::snapshot(Fiber& fiber, NodeId node,
                                                LeaderEpoch leader_epoch) {
    for (int attempt = 0; attempt < SNAPSHOT_ATTEMPTS_MAX; ++attempt) {
        auto bytes = std::make_shared<ByteVector>();
        peer::Snapshot request;
        request.leader_epoch = leader_epoch;
        while (true) {
            request.request_id = ++last_request_id_;
            request.file_offset = bytes->size();
            const ByteVector payload = MORTAR_TRY(ask(fiber, node, peer::Op::SNAPSHOT_REPLY,
                                                      request.request_id, peer::encode(request)));
            const peer::SnapshotReply reply =
                MORTAR_TRY(peer::decode<peer::SnapshotReply>(payload));
            if (reply.outcome == peer::FetchOutcome::NO_SUCH_LOG && !bytes->empty()) break;
            if (reply.outcome != peer::FetchOutcome::OK) return failed_there(reply.outcome);
            request.through = reply.through;
            bytes->insert(bytes->end(), reply.bytes.begin(), reply.bytes.end());
            if (bytes->size() >= reply.total_bytes)
                return MetadataSnapshot{reply.through, std::move(bytes)};
            if (reply.bytes.empty())
                return make_error(ErrorCode::MALFORMED_PAYLOAD, "a snapshot that ends early");
        }
        MORTAR_SOMETIMES(true, "replica: the snapshot changed while it was fetched");
    }
    return make_error(ErrorCode::TIMED_OUT, "the peer's snapshot changes faster than it is read");
}

Result<ByteVector> PeerRequests::ask(Fiber& fiber, NodeId node, peer::Op expected,
                                     std::uint32_t request_id, ByteVector frame) {
    peer::PeerChannel* channel = peers_.channel(node, peer::Lane::BULK);
    if (channel == nullptr) return make_error(ErrorCode::CONNECTION_CLOSED, "the peer is away");
    const auto waiting = std::make_shared<Waiting>();
    waiting->node = node;
    waiting->expected = expected;
    waiting_.emplace(request_id, waiting);
    channel->send(std::move(frame));
    const MonoTime deadline = deadline_after(env_.clock, PEER_REQUEST_TIMEOUT);
    Result<void> waited;
    while (waited.ok() && !waiting->is_answered)
        waited = waiting->answered.wait(fiber, deadline);
    waiting_.erase(request_id);
    if (!waited.ok()) return waited.error();
    if (waiting->failure) return *waiting->failure;
    return std::move(waiting->payload);
}

Result<void> PeerRequests::on_reply(NodeId node, peer::Op op, ByteSpan payload) {
    // All three begin with it.
    ByteReader reader(payload);
    const std::uint32_t request_id = reader.u32();
    const auto found = waiting_.find(request_id);
    if (reader.failed() || found == waiting_.end()) return {};  // it came too late
    Waiting& waiting = *found->second;
    if (waiting.node != node || waiting.expected != op)
        return make_error(ErrorCode::MALFORMED_PAYLOAD, "an answer to another question");
    waiting.payload.assign(payload.begin(), payload.end());
    waiting.is_answered = true;
    waiting.answered.notify_all();
    return {};
}

void PeerRequests::on_refused(NodeId node) {
    fail_all(node, make_error(ErrorCode::STALE_LEADER_EPOCH, "the peer has promised a higher one"));
}

void PeerRequests::on_promised() {
    for (const auto& [request_id, waiting] : waiting_)
        fail(*waiting, make_error(ErrorCode::STALE_LEADER_EPOCH, "a higher one is promised"));
}

void PeerRequests::on_channel_down(NodeId node) {
    fail_all(node, make_error(ErrorCode::CONNECTION_CLOSED, "the peer went away"));
}

void PeerRequests::fail_all(NodeId node, const Error& error) {
    for (const auto& [request_id, waiting] : waiting_) {
        if (waiting->node == node) fail(*waiting, error);
    }
}

void PeerRequests::fail(Waiting& waiting, const Error& error) {
    if (waiting.is_answered) return;
    waiting.failure = error;
    waiting.is_answered = true;
    waiting.answered.notify_all();
}

}  // namespace mortar
