// mortarmqd: the real broker as a child process, and clients that may say anything to it.
// Shape:  Program runs any program; Broker is a mortarmqd on free ports over a folder; RawClient
//         speaks frames over a blocking socket. Nothing here retries or hides.
// Owns:   the child, killed at the end whatever happens; the folder, removed at the end.
// Errors: what a test may expect comes back; the rest fails the running test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/wire/codec.h"
#include "core/wire/messages.h"

namespace mortar::process {

using Millis = std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime now() {
    return std::chrono::steady_clock::now();
}

class TempFolder {
  public:
    TempFolder();
    ~TempFolder();
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::string& path() const { return path_; }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
// Writes one byte in the middle of a file.
void poke_file(const std::string& path, std::uint64_t file_offset, std::uint8_t value);
// Everything below folder, a line each: kind, mode, size and digest. LOCK is left out: taking the
// lock makes it, and it says who looked last.
std::string listing(const std::string& folder);
// Lines that only one of two listings has; empty when they are equal.
std::string changes(const std::string& before, const std::string& after);

struct ProgramOptions {
    uid_t uid = 0;                    // not 0: runs as this user
    bool ignores_file_limit = false;  // a write over RLIMIT_FSIZE fails instead of killing
};

class Program {
  public:
    explicit Program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    pid_t pid() const { return pid_; }
    // Standard output and error so far.
    std::string output() const { return read_file(folder_ / "output"); }
    bool wait_for_output(const std::string& text, Millis timeout = Millis(20'000)) const;
    void signal(int number) const;
    // Exit code; 128 + signal when killed; nothing when it still runs.
    std::optional<int> wait(Millis timeout);
    bool is_running() { return !wait(Millis(0)).has_value(); }

  private:
    TempFolder folder_;
    pid_t pid_ = -1;
    std::optional<int> exit_code_;
};

// Runs to its end; a test fails when that takes more than 30 s.
struct Ran {
    int exit_code = -1;
    std::string output;
};
Ran run(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

std::string broker_path();

// Keys beyond those every test needs: node 0, free ports on 127.0.0.1, data_dir.
std::string broker_config(const std::string& data_dir, const std::string& more = {});

class Broker {
  public:
    // Returns when it is ready.
    explicit Broker(const std::string& data_dir, const std::string& more_config = {});
    ~Broker() = default;

    Program& program() { return *program_; }
    std::uint16_t client_port() const { return client_port_; }
    std::uint16_t admin_port() const { return admin_port_; }
    std::uint64_t rss_bytes() const;
    // All that it read by system calls, cached or not.
    std::uint64_t read_bytes() const;
    // Status line and body.
    std::string http_get(const std::string& path) const;
    bool is_healthy() const;
    void kill();
    // SIGTERM, then its exit code.
    int stop();

  private:
    TempFolder folder_;
    std::unique_ptr<Program> program_;
    std::uint16_t client_port_ = 0;
    std::uint16_t admin_port_ = 0;
};

// One frame of the broker, decoded as far as every test needs it.
struct Answer {
    wire::Op op = wire::Op::PING;  // of the request, for OK and ERR
    bool is_answer = false;        // false: a push
    ErrorCode code{};              // 0: OK, or a push
    std::string text;
    std::uint8_t frame_op = 0;
    ByteVector payload;  // of the frame
    ByteVector result;   // of an OK
};

// True as soon as the condition holds; false when it does not within the time.
template <class Condition>
bool eventually(const Condition& holds, Millis timeout = Millis(20'000)) {
    for (const SteadyTime deadline = now() + timeout; now() < deadline;) {
        if (holds()) return true;
        std::this_thread::sleep_for(Millis(5));
    }
    return holds();
}

class RawClient {
  public:
    explicit RawClient(std::uint16_t port);
    ~RawClient();
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    // False when the broker closed first or took nothing for so long.
    bool send(ByteSpan bytes, Millis timeout = Millis(20'000));
    // As much as the socket takes now; 0 also when it is closed.
    std::size_t send_some(ByteSpan bytes);
    template <class Message>
    bool say(const Message& message) {
        ByteVector frame;
        wire::encode(frame, message);
        return send(frame);
    }
    // The next frame; nothing at the end of the stream and after timeout (then is_open() is true).
    std::optional<Answer> read(Millis timeout = Millis(20'000));
    // The next answer; pushes on the way go to pushes.
    std::optional<Answer> read_answer(Millis timeout = Millis(20'000));
    template <class Message>
    Answer ask(const Message& message) {
        if (!say(message)) return closed_answer();
        return read_answer().value_or(closed_answer());
    }
    bool connect(std::string_view token = {});
    // Reads to the end of the stream within the time.
    bool is_closed_within(Millis timeout);
    bool is_open() const { return is_open_; }
    int descriptor() const { return descriptor_; }
    std::vector<Answer> pushes;

    static Answer closed_answer();

  private:
    bool fill(SteadyTime deadline);

    int descriptor_ = -1;
    bool is_open_ = false;
    ByteVector scratch_;
    ByteVector received_;
    std::size_t next_ = 0;
};

// Connected; the test fails when not.
std::unique_ptr<RawClient> connected_client(std::uint16_t port);
TopicId declare_topic(RawClient& client, const std::string& name, std::uint16_t partition_count);
wire::Pub pub_of(TopicId topic, std::string_view value, std::uint64_t producer = 0,
                 std::uint64_t seq = 0);

// One subscription that has confirmed what it was assigned.
struct Subscribed {
    wire::SubResult sub;
    std::vector<wire::Notice> notices;
};
std::optional<Subscribed> subscribe(RawClient& client, const std::string& group, TopicId topic,
                                    std::uint16_t partition_count, std::uint16_t credit_count = 0,
                                    std::uint32_t credit_bytes = 0);
wire::Pull pull_of(const Subscribed& subscribed, std::uint16_t max_msgs, std::uint16_t wait_ms);
wire::Ack ack_of(const wire::Msg& msg);

std::string name_of(ErrorCode code);

}  // namespace mortar::process
