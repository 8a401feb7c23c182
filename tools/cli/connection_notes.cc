#include "tools/cli/connection_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

namespace mortar::cli {

namespace {
constexpr Duration LOOK_EVERY = milliseconds(200);
// A broker that answers within this time is not worth a line.
constexpr Duration QUIET_FOR = seconds(1);
}  // namespace

ConnectionNotes::ConnectionNotes(Session& session, client::Link& link)
    : session_(session), link_(link), group_(session.env.scheduler) {}

void ConnectionNotes::start() {
    begin_ = session_.env.clock.now();
    group_.spawn("cli.notes", [this](Fiber& fiber) { watch(fiber); });
}

void ConnectionNotes::stop(Fiber& fiber) {
    group_.cancel_and_join(fiber);
    if (!link_.fatal_error()) look();
}

std::string ConnectionNotes::addresses() const {
    return fmt::format("{}", fmt::join(session_.options.addresses, ", "));
}

// The error of the link repeats the address, which the line names already.
std::string ConnectionNotes::reason() const {
    if (!link_.last_error()) return "no answer";
    const std::string& detail = link_.last_error()->detail;
    const std::size_t at = detail.rfind(": ");
    return at == std::string::npos ? detail : detail.substr(at + 2);
}

void ConnectionNotes::watch(Fiber& fiber) {
    while (!link_.fatal_error()) {
        look();
        const MonoTime next = session_.env.clock.now() + LOOK_EVERY;
        if (!session_.env.scheduler.sleep_until(fiber, next).ok()) return;
    }
}

void ConnectionNotes::look() {
    // A session may have come, and even gone, between two looks.
    const bool was_replaced = seen_session_ != 0 && link_.session() != seen_session_;
    const bool is_lost = link_.session() != 0 && (!link_.is_up() || was_replaced);
    const bool is_late = link_.session() == 0 && session_.env.clock.now() - begin_ >= QUIET_FOR;
    if (is_lost && !is_told_) {
        fmt::print(stderr, "mortarmq: the connection to {} was lost ({}), reconnecting ..\n",
                   addresses(), reason());
    } else if (is_late && !is_told_) {
        fmt::print(stderr, "mortarmq: waiting for {} ({}) ..\n", addresses(), reason());
    }
    is_told_ = is_told_ || is_lost || is_late;
    if (!link_.is_up()) return;
    if (is_told_) fmt::print(stderr, "mortarmq: connected to {}\n", link_.broker());
    is_told_ = false;
    seen_session_ = link_.session();
}

}  // namespace mortar::cli
