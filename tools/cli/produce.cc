// produce: one message a line, pipelined, acknowledged before it counts.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/client/producer.h"
#include "tools/cli/cli.h"
#include "tools/cli/connection_notes.h"
#include "tools/cli/line_reader.h"

namespace mortar::cli {

namespace {

constexpr Duration PROGRESS_EVERY = milliseconds(500);
constexpr std::size_t ERRORS_TOLD_MAX = 5;

class Production {
  public:
    Production(Session& session, const Produce& arguments)
        : session_(session),
          arguments_(arguments),
          producer_(session.env, session.link_options(), producer_options(arguments)),
          notes_(session, producer_.link()),
          reader_(session.loop,
                  arguments.files.empty() ? std::vector<std::string>{"-"} : arguments.files) {}

    ~Production() {
        if (ack_log_ != nullptr) std::fclose(ack_log_);
    }

    int run(Fiber& fiber) {
        if (!open_ack_log()) return EXIT_ARGUMENTS;
        const Result<void> caught =
            session_.loop.catch_signals({SIGINT, SIGTERM}, [this](int) { reader_.stop(); });
        if (!caught.ok()) return report(caught.error());
        producer_.start();
        notes_.start();
        const Result<void> up = producer_.link().wait_up(fiber, session_.connect_deadline());
        int exit_code = up.ok() ? publish_all(fiber) : report_unreachable(session_, up.error());
        notes_.stop(fiber);
        producer_.close(fiber);
        if (is_ack_log_lost_) {
            fmt::print(stderr, "mortarmq: cannot write {}: acknowledged lines are missing in it\n",
                       arguments_.ack_log);
            if (exit_code == EXIT_DONE) exit_code = EXIT_ARGUMENTS;
        }
        return exit_code;
    }

  private:
    static client::ProducerOptions producer_options(const Produce& arguments) {
        client::ProducerOptions options;
        options.buffered_count_max = arguments.outstanding_max;
        options.delivery_timeout = seconds(arguments.timeout_s);
        return options;
    }

    bool open_ack_log() {
        if (arguments_.ack_log.empty()) return true;
        ack_log_ = std::fopen(arguments_.ack_log.c_str(), "w");
        if (ack_log_ == nullptr)
            fmt::print(stderr, "mortarmq: cannot write {}\n", arguments_.ack_log);
        return ack_log_ != nullptr;
    }

    // Whatever ends the reading, what is under way is finished and counted.
    int publish_all(Fiber& fiber) {
        began_ = session_.env.clock.now();
        const int exit_code = publish_lines(fiber);
        (void)producer_.flush(fiber);
        if (exit_code == EXIT_DONE || line_number_ > 0) summarize();
        if (exit_code != EXIT_DONE || failed_count_ == 0) return exit_code;
        return refused_ ? EXIT_REFUSED : EXIT_UNREACHABLE;
    }

    int publish_lines(Fiber& fiber) {
        while (true) {
            Result<std::optional<std::string>> line = reader_.next(fiber);
            if (!line.ok()) {
                fmt::print(stderr, "mortarmq: {}\n", line.error().detail);
                return EXIT_ARGUMENTS;
            }
            if (!line->has_value()) return EXIT_DONE;
            ++line_number_;
            const Result<void> accepted = publish_line(fiber, std::move(**line));
            if (!accepted.ok()) {
                ++failed_count_;
                return report(accepted.error(),
                              fmt::format("line {}, the last that was read: ", line_number_));
            }
            show_progress();
        }
    }

    Result<void> publish_line(Fiber& fiber, std::string line) {
        std::string key;
        if (!arguments_.key_separator.empty()) {
            const std::size_t at = line.find(arguments_.key_separator);
            if (at != std::string::npos) {
                key = line.substr(0, at);
                line.erase(0, at + arguments_.key_separator.size());
            } else if (keyless_count_++ == 0) {
                first_keyless_line_ = line_number_;
            }
        }
        const MonoTime began = session_.env.clock.now();
        const std::uint64_t number = line_number_;
        return producer_.publish_async(fiber, arguments_.topic, std::move(key), std::move(line),
                                       [this, began, number](Result<client::Published> result) {
                                           on_published(began, number, std::move(result));
                                       });
    }

    void on_published(MonoTime began, std::uint64_t number, Result<client::Published> result) {
        if (!result.ok()) {
            ++failed_count_;
            refused_ = refused_ || !is_local(result.error().code);
            if (failed_count_ <= ERRORS_TOLD_MAX)
                (void)report(result.error(), fmt::format("line {}: ", number));
            return;
        }
        latencies_us_.push_back(
            static_cast<std::uint64_t>((session_.env.clock.now() - began).to_us()));
        if (ack_log_ == nullptr) return;
        fmt::print(ack_log_, "{}\t{}\t{}\t{}\t{}\n", result->partition.value,
                   result->sequence.value, number, result->leader_epoch.value,
                   session_.env.clock.wall_unix_ms());
        // Whoever follows the log wants to see an acknowledged line when it is one.
        if (std::fflush(ack_log_) != 0) is_ack_log_lost_ = true;
    }

    void show_progress() {
        const MonoTime now = session_.env.clock.now();
        if (now < next_progress_ || isatty(STDERR_FILENO) != 1) return;
        next_progress_ = now + PROGRESS_EVERY;
        fmt::print(stderr, "\r{} published, {} waiting ", latencies_us_.size(),
                   producer_.unresolved_count());
        shown_ = true;
    }

    std::uint64_t percentile_us(std::size_t per_mille) const {
        if (latencies_us_.empty()) return 0;
        return latencies_us_[(latencies_us_.size() - 1) * per_mille / 1000];
    }

    void summarize() {
        std::sort(latencies_us_.begin(), latencies_us_.end());
        const std::int64_t took_ms = (session_.env.clock.now() - began_).to_ms();
        const client::ProducerStats& stats = producer_.stats();
        if (shown_) fmt::print(stderr, "\r");
        fmt::print(stderr,
                   "published {} of {} lines in {} ms, {} failed, {} sent again, {} of them were "
                   "stored already; PUB p50 {} us, p99 {} us\n",
                   latencies_us_.size(), line_number_, took_ms, failed_count_, stats.resent,
                   stats.deduplicated, percentile_us(500), percentile_us(990));
        if (keyless_count_ > 0) {
            fmt::print(stderr,
                       "{} lines have no separator \"{}\" and got no key, the first is line {}\n",
                       keyless_count_, arguments_.key_separator, first_keyless_line_);
        }
        if (!session_.options.json) return;
        fmt::print("{}\n", nlohmann::ordered_json({{"published", latencies_us_.size()},
                                                   {"lines", line_number_},
                                                   {"failed", failed_count_},
                                                   {"keyless", keyless_count_},
                                                   {"resent", stats.resent},
                                                   {"deduplicated", stats.deduplicated},
                                                   {"took_ms", took_ms},
                                                   {"p50_us", percentile_us(500)},
                                                   {"p99_us", percentile_us(990)}})
                               .dump());
    }

    Session& session_;
    const Produce& arguments_;
    client::Producer producer_;
    ConnectionNotes notes_;
    LineReader reader_;
    std::FILE* ack_log_ = nullptr;
    MonoTime began_;
    MonoTime next_progress_;
    bool shown_ = false;
    bool refused_ = false;
    bool is_ack_log_lost_ = false;
    std::uint64_t line_number_ = 0;
    std::size_t failed_count_ = 0;
    std::size_t keyless_count_ = 0;  // of lines with --key-sep
    std::uint64_t first_keyless_line_ = 0;
    std::vector<std::uint64_t> latencies_us_;
};

}  // namespace

int produce(Fiber& fiber, Session& session, const Produce& arguments) {
    for (const std::string& path : arguments.files) {
        if (path == "-" || access(path.c_str(), R_OK) == 0) continue;
        fmt::print(stderr, "mortarmq: cannot read {}: {}\n", path, std::strerror(errno));
        return EXIT_ARGUMENTS;
    }
    Production production(session, arguments);
    return production.run(fiber);
}

}  // namespace mortar::cli
