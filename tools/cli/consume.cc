// consume: prints what a group gets, and acknowledges what was printed.
// Invariant: a message is acknowledged after the kernel took its last byte, never before: what dies with this process, or
//            with its output, comes again.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/client/consumer.h"
#include "core/fiber/deadline.h"
#include "tools/cli/cli.h"
#include "tools/cli/connection_notes.h"
#include "tools/cli/format.h"

namespace mortar::cli {

namespace {

// Without acks nothing frees credit: the window is as wide as the protocol allows.
constexpr std::uint16_t NO_ACK_CREDIT_COUNT = 65'535;
// What is printed and acknowledged at once at most; less when no more messages are there.
constexpr std::size_t BATCH_COUNT_MAX = client::ACK_BATCH_COUNT;
constexpr std::size_t BATCH_BYTES_MAX = client::ACK_BATCH_BYTES;

std::string as_json(const std::string& topic, const client::Message& message) {
    const nlohmann::ordered_json line = {{"topic", topic},
                                         {"partition", message.partition.value},
                                         {"sequence", message.sequence.value},
                                         {"attempt", message.attempt},
                                         {"key", message.key},
                                         {"value", message.value}};
    return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

class Consumption {
  public:
    Consumption(Session& session, const Consume& arguments, Format format)
        : session_(session),
          arguments_(arguments),
          format_(std::move(format)),
          consumer_(session.env, session.link_options(), consumer_options(arguments)),
          notes_(session, consumer_.link()) {}

    int run(Fiber& fiber) {
        // Ctrl-C: what was printed is acknowledged, then the member leaves.
        const Result<void> caught =
            session_.loop.catch_signals({SIGINT, SIGTERM}, [this](int) { interrupted_ = true; });
        if (!caught.ok()) return report(caught.error());
        consumer_.start();
        notes_.start();
        const Result<void> up = consumer_.link().wait_up(fiber, session_.connect_deadline());
        const int exit_code =
            up.ok() ? consume_all(fiber) : report_unreachable(session_, up.error());
        notes_.stop(fiber);
        consumer_.close(fiber);
        if (up.ok()) {
            fmt::print(stderr, "{} messages, {} acknowledged\n", printed_count_,
                       consumer_.stats().acked);
        }
        return exit_code;
    }

  private:
    static client::ConsumerOptions consumer_options(const Consume& arguments) {
        client::ConsumerOptions options;
        options.topic = arguments.topic;
        options.group = arguments.group;
        options.start_policy =
            arguments.from == "latest" ? wire::StartPolicy::LATEST : wire::StartPolicy::EARLIEST;
        if (arguments.no_ack) {
            options.credit_count = NO_ACK_CREDIT_COUNT;
            options.credit_bytes = client::WINDOW_BYTES_MAX;
        }
        return options;
    }

    // Nothing read since nobody let it in is another thing than nothing there.
    int consume_all(Fiber& fiber) {
        const int exit_code = print_messages(fiber);
        if (exit_code != EXIT_DONE || interrupted_ || consumer_.stats().subscriptions > 0)
            return exit_code;
        fmt::print(stderr,
                   "mortarmq: the group was not joined within {} s: no leader, or no such topic\n",
                   arguments_.timeout_s);
        return EXIT_UNREACHABLE;
    }

    int print_messages(Fiber& fiber) {
        // Short waits, so that Ctrl-C is seen; the messages themselves come at once.
        constexpr Duration LOOK_UP_EVERY = milliseconds(100);
        MonoTime give_up = idle_deadline();
        while (!interrupted_ && !is_count_reached()) {
            const MonoTime now = session_.env.clock.now();
            if (now >= give_up) break;
            // What is collected goes out before anything is waited for.
            const MonoTime deadline = batch_.empty() ? std::min(give_up, now + LOOK_UP_EVERY) : now;
            Result<client::Message> message = consumer_.next(fiber, deadline);
            if (message.is(ErrorCode::TIMED_OUT)) {
                if (!print_batch()) return EXIT_ARGUMENTS;
                continue;
            }
            if (!message.ok()) {
                const bool printed = print_batch();
                const int exit_code = report(message.error());
                return printed ? exit_code : EXIT_ARGUMENTS;
            }
            collect(std::move(*message));
            if (batch_.size() >= BATCH_COUNT_MAX || text_.size() >= BATCH_BYTES_MAX) {
                if (!print_batch()) return EXIT_ARGUMENTS;
            }
            give_up = idle_deadline();
        }
        return print_batch() ? EXIT_DONE : EXIT_ARGUMENTS;
    }

    bool is_count_reached() const {
        return arguments_.count != 0 && printed_count_ + batch_.size() >= arguments_.count;
    }

    void collect(client::Message message) {
        if (session_.options.json) {
            text_.append(as_json(arguments_.topic, message));
        } else {
            format_.append(text_, arguments_.topic, message);
        }
        message.key.clear();
        message.value.clear();
        message.value.shrink_to_fit();
        batch_.push_back(std::move(message));
    }

    // False when the output does not take it: then nothing of the batch is acknowledged.
    bool print_batch() {
        if (batch_.empty()) return true;
        const bool taken = std::fwrite(text_.data(), 1, text_.size(), stdout) == text_.size() &&
                           std::fflush(stdout) == 0;
        if (!taken) {
            fmt::print(stderr,
                       "mortarmq: cannot write to the standard output: {}; the last {} messages "
                       "are not acknowledged and come again\n",
                       std::strerror(errno), batch_.size());
            return false;
        }
        printed_count_ += batch_.size();
        if (!arguments_.no_ack) {
            for (const client::Message& message : batch_)
                consumer_.ack(message);
        }
        batch_.clear();
        text_.clear();
        return true;
    }

    MonoTime idle_deadline() const {
        if (arguments_.timeout_s == 0) return NEVER;
        return deadline_after(session_.env.clock, seconds(arguments_.timeout_s));
    }

    Session& session_;
    const Consume& arguments_;
    Format format_;
    client::Consumer consumer_;
    ConnectionNotes notes_;
    bool interrupted_ = false;
    std::vector<client::Message> batch_;  // collected, not printed; without key and value
    std::string text_;                    // of the batch
    std::uint64_t printed_count_ = 0;
};

}  // namespace

int consume(Fiber& fiber, Session& session, const Consume& arguments) {
    Result<Format> format = Format::parse(arguments.format);
    if (!format.ok()) {
        fmt::print(stderr, "mortarmq: {}\n", format.error().detail);
        return EXIT_ARGUMENTS;
    }
    Consumption consumption(session, arguments, std::move(*format));
    return consumption.run(fiber);
}

}  // namespace mortar::cli
