// client: MortarMQ for applications: publish and consume from any thread, with one loop thread behind it all.
// Shape:    Client owns a thread that runs every connection; its calls may come from any thread at the same time.
//           Consumer is a member of a group: poll for messages, or give it a handler that runs on a thread of its own,
//           so a slow handler never stops heartbeats or the renewal of leases.
//           The header needs the standard library only; link mortarmq::mortarmq.
// Units:    times are std::chrono; sizes are bytes; sequences count from 1 in each partition.
// Owns:     what is passed in is copied or moved; what is returned is the caller's.
// Errors:   values, not exceptions: Result holds a T or an Error whose code is that of the protocol's registry, or
//           0xf000 and above for what happened on this side (0xf001 TIMED_OUT, 0xf002 CONNECTION_CLOSED, 0xf031
//           INVALID_ARGUMENT). Error::outcome says whether the request may have been executed.
// Blocks:   connect, publish, publish_async (only while too much waits for the broker), flush, the topic calls, poll,
//           ack_and_wait, close. Never call these from a PublishCallback: it runs on the loop thread and must return soon.
// Durable:  a publish answered with a Receipt is on the disks that the broker's durability promises.
// Invariant: each publish_async is answered exactly once. In a partition, what one thread publishes is stored in its order,
//           once, across reconnects and restarts of the broker.
// Use:      auto client = mortarmq::Client::connect({.addresses = {"127.0.0.1:7188"}});
//           if (client.ok()) auto receipt = client->publish("orders", "key", "value");
// Source:   design 2 (last paragraph), contract P1..P5, G1..G5, D1..D3, D7.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace mortarmq {

// The version of this library, "major.minor.patch".
std::string version();

enum class Outcome : std::uint8_t {
    REFUSED,       // judged, and will be judged the same again
    NOT_EXECUTED,  // nothing was changed; later it may work
    UNKNOWN,       // it may have been executed
};

struct Error {
    std::uint16_t code = 0;
    std::string name;  // "UNKNOWN_TOPIC"
    std::string text;  // for a person: what happened, and what to do
    Outcome outcome = Outcome::UNKNOWN;

    bool is(const char* other_name) const { return name == other_name; }
    std::string to_string() const { return text.empty() ? name : name + ": " + text; }
};

// A T or an Error. value() of an error, or error() of a value, throws std::bad_variant_access.
template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value)
        : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: meant to convert
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }
    T& value() { return std::get<0>(state_); }
    const T& value() const { return std::get<0>(state_); }
    T& operator*() { return value(); }
    T* operator->() { return &value(); }
    const T& operator*() const { return value(); }
    const T* operator->() const { return &value(); }
    const Error& error() const { return std::get<1>(state_); }

  private:
    std::variant<T, Error> state_;
};

// Nothing, or an Error.
template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: meant to convert
    bool ok() const { return !error_.has_value(); }
    explicit operator bool() const { return ok(); }
    const Error& error() const { return error_.value(); }

  private:
    std::optional<Error> error_;
};

struct ClientOptions {
    // host:port of any brokers of the cluster, one an entry or several with commas; the more, the sooner a new leader is
    // found. Leaders that a broker names are followed even if they are not here.
    std::vector<std::string> addresses = {"127.0.0.1:7188"};
    std::string token{};
    // How long connect waits for a broker. Afterwards the client reconnects by itself, for ever.
    std::chrono::milliseconds connect_timeout{10'000};
    // After so long a message that was not answered fails with TIMED_OUT.
    std::chrono::milliseconds delivery_timeout{120'000};
    // Stores each message once, whatever happens on the way. Off: a lost answer fails the message instead.
    bool idempotent = true;
    // publish_async blocks when more than this waits for the broker.
    std::size_t buffered_count_max = 16 * 1024;
    std::size_t buffered_bytes_max = 64 * 1024 * 1024;
};

struct TopicInfo {
    std::uint16_t topic_id = 0;
    std::uint16_t partition_count = 0;
    bool existed = false;
};

// What the broker said of a stored message.
struct Receipt {
    std::uint16_t partition = 0;
    std::uint64_t sequence = 0;
    bool deduplicated = false;  // an earlier try had stored it
};
using PublishCallback = std::function<void(Result<Receipt>)>;

struct ConsumerOptions {
    std::string topic{};
    std::string group{};
    enum class Start : std::uint8_t { EARLIEST, LATEST };
    Start start = Start::EARLIEST;  // counts when this consumer's coming creates the group
    // What may be handed out and not settled at a time.
    std::uint16_t credit_count = 256;
    std::uint32_t credit_bytes = 2 * 1024 * 1024;
    // The broker's delivery_lease_ms.
    std::chrono::milliseconds lease{30'000};
    // Told on the loop thread of each message that the broker refused to settle: it was not settled, and comes again.
    // Must return soon; what is said of PublishCallback holds here too.
    std::function<void(std::uint16_t partition, std::uint64_t sequence, const Error&)>
        on_settle_refused{};
};

struct Message {
    std::string key;
    std::string value;
    std::uint16_t partition = 0;
    std::uint64_t sequence = 0;
    std::uint16_t attempt = 1;
    // The broker counts no further attempt. It would go to the dead letters next, which this version does not write yet: a
    // message that fails this one comes again.
    bool is_last_attempt = false;
    bool is_replayed = false;

    // For ack and nack; of no meaning to the application.
    std::uint64_t delivery_id = 0;
    std::uint64_t ownership_epoch = 0;
    std::uint64_t session = 0;
};

// What a handler decided about a message.
enum class Verdict : std::uint8_t {
    ACK,    // done
    RETRY,  // failed; again after a pause
    // Failed for good. This version does not write dead letters yet: the broker refuses REJECT with DLQ_UNAVAILABLE, told by
    // ConsumerOptions::on_settle_refused, and the message comes again.
    REJECT,
    REQUEUE,  // failed; again at once
};

// A member of a group. Made by Client::subscribe. Movable; safe to use from several threads.
class Consumer {
  public:
    Consumer(Consumer&&) noexcept;
    Consumer& operator=(Consumer&&) noexcept;
    ~Consumer();  // close()

    // The next message. TIMED_OUT when there was none in time; CONNECTION_CLOSED after close; else why this member cannot
    // go on (UNKNOWN_TOPIC, GROUP_EXISTS_MISMATCH, GROUP_MEMBER_LIMIT, AUTH_FAILED ..).
    Result<Message> poll(std::chrono::milliseconds timeout);
    // Done with it. Sent soon, in batches; does not block.
    void ack(const Message& message);
    // Done, and the broker promised that the group never gets it again. CONNECTION_CLOSED: unknown; if the message
    // comes again, it is settled without bothering the application.
    Result<void> ack_and_wait(const Message& message);
    // Failed: RETRY, REJECT or REQUEUE (ACK acts as ack). Does not block: a refusal is told by
    // ConsumerOptions::on_settle_refused.
    void settle(const Message& message, Verdict verdict);
    // Calls handler for each message, one after the other, on a thread of this consumer, until close; settles each with
    // what handler returns. Do not poll then. on_end, if given, is called on that thread with the reason when the member
    // cannot go on. At most once a consumer. An exception that leaves handler ends the process.
    void run(std::function<Verdict(const Message&)> handler,
             std::function<void(const Error&)> on_end = nullptr);
    // Waits for a handler that runs, settles what was acked, leaves the group. Messages that were not settled go to
    // other members at once. Idempotent. Not from the handler.
    void close();

  private:
    friend class Client;
    struct Impl;
    explicit Consumer(std::shared_ptr<Impl> impl);
    std::shared_ptr<Impl> impl_;
};

// Movable; safe to use from several threads. Close it, or destroy it, after its consumers or before: both are fine.
class Client {
  public:
    // Starts the loop thread and waits until a broker answered. TIMED_OUT names the addresses and the last reason;
    // AUTH_FAILED, UNSUPPORTED_VERSION; INVALID_ARGUMENT for options that make no sense.
    static Result<Client> connect(ClientOptions options = {});
    Client(Client&&) noexcept;
    Client& operator=(Client&&) noexcept;
    ~Client();  // close(), without waiting for messages that were not answered

    // Returns when the message is stored, or cannot be. An empty key takes the partitions in turn; the same key always
    // takes the same partition.
    Result<Receipt> publish(std::string topic, std::string key, std::string value);
    // The same without waiting; blocks only while too much is under way.
    std::future<Result<Receipt>> publish_async(std::string topic, std::string key,
                                               std::string value);
    // .. with a callback on the loop thread instead of a future.
    void publish_async(std::string topic, std::string key, std::string value,
                       PublishCallback callback);
    // Waits until all that was published so far is answered (each its own way). TIMED_OUT.
    Result<void> flush(std::chrono::milliseconds timeout = std::chrono::milliseconds::max());

    // partition_count 0 = the broker's default. TOPIC_EXISTS_MISMATCH when it exists with another count.
    Result<TopicInfo> create_topic(std::string name, std::uint16_t partition_count = 0);
    // UNKNOWN_TOPIC when there is none.
    Result<TopicInfo> lookup_topic(std::string name);
    // With its messages, dead letters and groups. UNKNOWN_TOPIC when there is none.
    Result<TopicInfo> delete_topic(std::string name);

    // Joins a group. Does not block: what stands against it is told by the first poll.
    Consumer subscribe(ConsumerOptions options);

    // Ends all consumers and connections and the thread; what was not answered fails with CONNECTION_CLOSED: flush
    // first. Idempotent. Later calls fail with CONNECTION_CLOSED.
    void close();

  private:
    friend class Consumer;
    struct Impl;
    explicit Client(std::shared_ptr<Impl> impl);
    std::shared_ptr<Impl> impl_;
};

}  // namespace mortarmq
