// load: a closed loop of PUBs: each connection always has so many outstanding, the next leaves when one was answered.
// Shape:    one thread, plain blocking sockets and poll; PUBs that may leave together leave in one send. The same client
//           for the broker and for the echo server, so that it cancels out of a comparison. Each connection is a producer
//           of its own with consecutive numbers, and keeps to one partition.
// Owns:     its sockets.
// Errors:   CONNECTION_REFUSED, CONNECTION_CLOSED, ADDRESS_INVALID; an ERR of the broker with its code and text.
// Source:   issue 2 (Speed), contract P1, P2.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/wire/messages.h"
#include "tools/bench/disk_probe.h"

namespace mortar::bench {

inline constexpr std::size_t CONNECTIONS_MAX = 1000;
// The broker remembers as many numbers of a producer.
inline constexpr std::size_t OUTSTANDING_MAX = 1000;

struct LoadPlan {
    std::string address;  // numeric host:port
    // Made with one partition when it does not exist. Empty: an echo server, which knows none.
    std::string topic;
    std::string token;
    std::size_t connections = 1;
    std::size_t outstanding = 1;
    std::size_t value_bytes = 1024;
};

class Load {
  public:
    static Result<std::unique_ptr<Load>> open(const LoadPlan& plan);
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    // Until the time is over or so many were answered; then waits for what is outstanding, which does
    // not count.
    Result<Round> run(Duration how_long, Histogram& latency, std::uint64_t count_max = UINT64_MAX);
    // The answer to the last PUB of the first connection.
    const wire::PubResult& last_result() const { return last_result_; }

  private:
    struct Client;

    explicit Load(const LoadPlan& plan);
    Result<void> connect();
    Result<void> log_in(Client& client);
    void send_more(Client& client);
    Result<void> flush(Client& client);
    Result<void> fill(Client& client);
    Result<void> receive(Client& client, Histogram* latency, Round& round);
    Result<void> wait_readable();
    Result<ByteVector> request(Client& client, const ByteVector& frame);

    LoadPlan plan_;
    std::string value_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::uint64_t may_send_count_ = 0;  // in this run
    ByteVector scratch_;
    wire::PubResult last_result_;
};

}  // namespace mortar::bench
