// tap: reads both directions of every client connection as bytes enter the send path, and tells the checkers what was said.
// Shape:  frames are put together per direction; answers are paired with requests in order (contract R1).
// Owns:   the state of each connection until it ends.
// Source: design 6 (checkers 1, 14), contract R1.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>

#include "sim/checker.h"

namespace mortar::sim {

class Tap {
  public:
    explicit Tap(std::vector<std::unique_ptr<Checker>>& checkers) : checkers_(checkers) {}

    void on_client_bytes(ConnId conn, ByteSpan bytes);
    void on_broker_bytes(ConnId conn, ByteSpan bytes);
    void on_end(ConnId conn);

    std::uint64_t acked_pubs() const { return acked_pubs_; }
    std::uint64_t acked_messages() const { return acked_messages_; }

  private:
    struct Request {
        wire::Op op;
        PubRequest pub;
        std::string group;  // SUB
        TopicId topic_id;   // SUB; DECLARE that deletes a topic
        bool deletes_topic = false;
        std::uint32_t credit_count = 0;
        std::uint32_t credit_bytes = 0;
        GroupPartition where;  // ACK, NACK, CREDIT
        Sequence sequence;
        bool progress = false;
    };
    struct Connection {
        ByteVector from_client;
        ByteVector from_broker;
        bool client_garbage = false;  // the client broke the framing: nothing after it is a request
        bool ended_by_error = false;
        std::deque<Request> waiting;
        std::map<SubscriptionId, std::pair<std::string, TopicId>> subscriptions;
    };

    void client_frame(ConnId id, Connection& connection, std::uint8_t op, ByteSpan payload);
    void broker_frame(ConnId id, Connection& connection, std::uint8_t op, ByteSpan payload);
    void answer_ok(ConnId id, Connection& connection, const wire::Ok& ok);
    void answer_error(ConnId id, Connection& connection, const wire::Err& err);
    GroupPartition where(const Connection& connection, SubscriptionId subscription_id,
                         TopicId topic_id, PartitionIndex partition) const;
    template <class Call>
    void tell(Call call) {
        for (auto& checker : checkers_)
            call(*checker);
    }

    std::vector<std::unique_ptr<Checker>>& checkers_;
    std::map<ConnId, Connection> connections_;
    std::set<ConnId> ended_;  // the other end may still say something into the void
    std::uint64_t acked_pubs_ = 0;
    std::uint64_t acked_messages_ = 0;
};

}  // namespace mortar::sim
