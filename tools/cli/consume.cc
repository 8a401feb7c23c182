// consume: prints what a group gets, and acknowledges what was printed.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/client/consumer.h"
#include "core/fiber/deadline.h"
#include "tools/cli/cli.h"

namespace mortar::cli {

namespace {

// Without acks nothing frees credit: the window is as wide as the protocol allows.
constexpr std::uint16_t NO_ACK_CREDIT_COUNT = 65'535;

std::string formatted(const std::string& format, const std::string& topic,
                      const client::Message& message) {
    std::string text;
    for (std::size_t i = 0; i < format.size(); ++i) {
        const char c = format[i];
        if ((c != '%' && c != '\\') || i + 1 == format.size()) {
            text.push_back(c);
            continue;
        }
        const char next = format[++i];
        if (c == '\\') {
            text.push_back(next == 'n' ? '\n' : next == 't' ? '\t' : next == '0' ? '\0' : next);
            continue;
        }
        switch (next) {
            case 't':
                text.append(topic);
                break;
            case 'p':
                text.append(std::to_string(message.partition.value));
                break;
            case 's':
                text.append(std::to_string(message.sequence.value));
                break;
            case 'a':
                text.append(std::to_string(message.attempt));
                break;
            case 'k':
                text.append(message.key);
                break;
            case 'v':
                text.append(message.value);
                break;
            default:
                text.push_back(next);
                break;
        }
    }
    return text;
}

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
    Consumption(Session& session, const Consume& arguments)
        : session_(session),
          arguments_(arguments),
          consumer_(session.env, session.link_options(), consumer_options(arguments)) {}

    int run(Fiber& fiber) {
        // Ctrl-C: what was printed is acknowledged, then the member leaves.
        const Result<void> caught =
            session_.loop.catch_signals({SIGINT, SIGTERM}, [this](int) { interrupted_ = true; });
        if (!caught.ok()) return report(caught.error());
        consumer_.start();
        const Result<void> up = consumer_.link().wait_up(fiber, session_.connect_deadline());
        const int exit_code =
            up.ok() ? print_messages(fiber) : report_unreachable(session_, up.error());
        consumer_.close(fiber);
        std::fflush(stdout);
        fmt::print(stderr, "{} messages, {} acknowledged\n", printed_count_,
                   consumer_.stats().acked);
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
            options.credit_bytes = client::CREDIT_BYTES_MAX;
        }
        return options;
    }

    int print_messages(Fiber& fiber) {
        // Short waits, so that Ctrl-C is seen; the messages themselves come at once.
        constexpr Duration LOOK_UP_EVERY = milliseconds(100);
        MonoTime give_up = idle_deadline();
        while (!interrupted_ && (arguments_.count == 0 || printed_count_ < arguments_.count)) {
            const MonoTime now = session_.env.clock.now();
            if (now >= give_up) break;
            Result<client::Message> message =
                consumer_.next(fiber, std::min(give_up, now + LOOK_UP_EVERY));
            if (message.is(ErrorCode::TIMED_OUT)) {
                std::fflush(stdout);
                continue;
            }
            if (!message.ok()) return report(message.error());
            const std::string text = session_.options.json
                                         ? as_json(arguments_.topic, *message)
                                         : formatted(arguments_.format, arguments_.topic, *message);
            if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
                fmt::print(stderr,
                           "mortarmq: cannot write to the standard output; the last message is not "
                           "acknowledged\n");
                return EXIT_ARGUMENTS;
            }
            ++printed_count_;
            if (!arguments_.no_ack) consumer_.ack(*message);
            give_up = idle_deadline();
        }
        return EXIT_DONE;
    }

    MonoTime idle_deadline() const {
        if (arguments_.timeout_s == 0) return NEVER;
        return deadline_after(session_.env.clock, seconds(arguments_.timeout_s));
    }

    Session& session_;
    const Consume& arguments_;
    client::Consumer consumer_;
    bool interrupted_ = false;
    std::uint64_t printed_count_ = 0;
};

}  // namespace

int consume(Fiber& fiber, Session& session, const Consume& arguments) {
    Consumption consumption(session, arguments);
    return consumption.run(fiber);
}

}  // namespace mortar::cli
