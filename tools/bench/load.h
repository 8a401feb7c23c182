// load: PUBs on many connections, in a closed loop (each always has so many outstanding, the next leaves when one was
//       answered) or in an open one (they leave when the schedule says, see schedule.h).
// Shape:    one thread, plain sockets and poll; PUBs that may leave together leave in one send. The same client for the
//           broker and for the echo server, so that it cancels out of a comparison. Each connection is a producer of its
//           own with consecutive numbers, and keeps to one partition. Of an open loop the next message goes to the next
//           connection that has room; while none has, it waits, and its latency grows.
//           What fails is counted by code and sent again as the client library does it: after a pause, from the first that
//           failed, under the same numbers; leader hints are followed and lost connections made again by its routes.
// Owns:     its sockets.
// Errors:   ADDRESS_INVALID; an ERR that no retry helps, with the broker's code and text; TIMED_OUT with the last reason
//           when nothing was accepted for PATIENCE; CANCELLED when *interrupted became true.
// Source:   issue 2 (Speed), issue 3 (mortarmq-bench), contract P1, P2, P3, R2, R3, 8 (client reconnect).
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/client/route.h"
#include "core/env/rng.h"
#include "core/wire/messages.h"
#include "tools/bench/disk_probe.h"

namespace mortar::bench {

inline constexpr std::size_t CONNECTIONS_MAX = 1000;
// The client library keeps as many under way in a partition.
inline constexpr std::size_t OUTSTANDING_MAX = 1000;
inline constexpr Duration PATIENCE = seconds(30);
// The first connection of all: what does not come up then is probably not there.
inline constexpr Duration CONNECT_PATIENCE = seconds(10);
inline constexpr Duration ANSWER_TIMEOUT = seconds(10);

struct LoadPlan {
    std::vector<std::string> addresses;  // tried in turn
    // None: an echo server, which knows no topics and needs no CONNECT.
    std::optional<TopicId> topic_id;
    std::uint16_t partition_count = 1;  // connection i keeps to partition i % partition_count
    // The broker chooses the partition of each message, in turn; a retry may then double it (contract P1).
    bool spreads = false;
    std::string token;
    std::size_t connections = 1;
    std::size_t outstanding = 1;
    std::size_t value_bytes = 1024;
    std::uint64_t per_second = 0;  // of all connections together; 0 = closed loop
    std::uint64_t run_id = 0;      // not 0: values begin with a stamp
    const std::atomic<bool>* interrupted = nullptr;
};

// Since open.
struct LoadTotals {
    std::array<std::uint64_t, 3> oks_by_durability{};  // index: wire::Durability
    std::map<std::uint16_t, std::uint64_t> errors;     // ERRs by code
    std::uint64_t resent = 0;
    std::uint64_t reconnects = 0;
    // Of an open loop: not sent, since all was still under way long after they were due. Their latency until then counts.
    std::uint64_t abandoned = 0;
};

class Load {
  public:
    // Answered so far, and since when; called a few times a second.
    using OnTick = std::function<void(std::uint64_t count, Duration elapsed)>;

    // Returns once all connections are up.
    static Result<std::unique_ptr<Load>> open(const LoadPlan& plan);
    ~Load();
    Load(const Load&) = delete;
    Load& operator=(const Load&) = delete;

    // Messages leave until the time is over or so many left; then waits for what is outstanding. Every latency counts; the
    // rate of a closed loop is what was answered until the time was over, that of an open one all that was answered.
    Result<Round> run(Duration how_long, Histogram& latency, std::uint64_t count_max = UINT64_MAX,
                      const OnTick& on_tick = nullptr);
    // The answer to the last PUB of the first connection.
    const wire::PubResult& last_result() const { return last_result_; }
    const LoadTotals& totals() const { return totals_; }

  private:
    struct Client;
    struct Run;

    explicit Load(const LoadPlan& plan);
    Result<void> wait_all_up(Duration patience);

    void give_out(Run& run, std::int64_t now);
    void give(Client& client, std::int64_t intended_ns);
    Client* next_with_room();
    void abandon_rest(Run& run, std::int64_t now);
    // One turn: what may leave leaves, then waits until something happens, at most until wake_ns, and handles it.
    Result<void> turn(Run* run, std::int64_t wake_ns);
    void wait(std::int64_t wake_ns);
    void write(Client& client, std::int64_t now);
    void encode_next(Client& client);
    Result<void> read(Client& client, Run* run);
    Result<void> handle_frame(Client& client, ByteSpan frame, Run* run, std::int64_t now);
    Result<void> on_pub_ok(Client& client, ByteSpan payload, Run* run, std::int64_t now);
    Result<void> on_err(Client& client, ByteSpan payload, std::int64_t now);
    void forget_done(Client& client, std::int64_t now);

    void connect(Client& client, std::int64_t now);
    void greet(Client& client);
    void disconnect(Client& client, const std::string& why, std::int64_t now,
                    client::Route::Ending ending = {});
    void check_silence(std::int64_t now);
    std::size_t outstanding() const;

    LoadPlan plan_;
    std::string value_;
    Rng rng_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::size_t next_client_ = 0;
    std::int64_t last_ok_ns_ = 0;
    std::string last_trouble_ = "no answer";
    wire::PubResult last_result_;
    LoadTotals totals_;
};

}  // namespace mortar::bench
