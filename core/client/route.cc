#include "core/client/route.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/assert.h"

namespace mortar::client {

namespace {

std::optional<std::uint64_t> parse_digits(std::string_view text) {
    std::uint64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, failure] = std::from_chars(text.data(), end, number);
    if (text.empty() || failure != std::errc() || stopped != end) return std::nullopt;
    return number;
}

bool take(std::string_view& text, std::string_view head) {
    if (!text.starts_with(head)) return false;
    text.remove_prefix(head.size());
    return true;
}

std::string_view take_until(std::string_view& text, std::string_view stop) {
    const std::size_t at = std::min(text.find(stop), text.size());
    const std::string_view word = text.substr(0, at);
    text.remove_prefix(at);
    return word;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view BLANKS = " \t";
    const std::size_t first = text.find_first_not_of(BLANKS);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(BLANKS) - first + 1);
}

}  // namespace

std::optional<LeaderHint> parse_leader_hint(std::string_view text) {
    constexpr std::string_view EPOCH = " epoch=";
    if (!take(text, "leader ")) return std::nullopt;
    LeaderHint hint;
    if (take(text, "node=")) {
        if (!parse_digits(take_until(text, " "))) return std::nullopt;
        if (!take(text, " addr=")) return std::nullopt;
        hint.address = take_until(text, " ");
        if (hint.address.empty()) return std::nullopt;
    } else if (!take(text, "unknown")) {
        return std::nullopt;
    }
    if (!take(text, EPOCH)) return std::nullopt;
    const std::optional<std::uint64_t> number = parse_digits(text);
    if (!number) return std::nullopt;
    hint.leader_epoch = LeaderEpoch(*number);
    return hint;
}

std::vector<std::string> split_addresses(const std::vector<std::string>& entries) {
    std::vector<std::string> addresses;
    for (const std::string& entry : entries) {
        std::string_view rest = entry;
        while (!rest.empty()) {
            const std::string address(trimmed(take_until(rest, ",")));
            take(rest, ",");
            const bool is_known =
                std::find(addresses.begin(), addresses.end(), address) != addresses.end();
            if (!address.empty() && !is_known) addresses.push_back(address);
        }
    }
    return addresses;
}

Route::Route(std::vector<std::string> addresses, Rng rng)
    : addresses_(std::move(addresses)), rng_(rng) {
    MORTAR_ASSERT(!addresses_.empty());
}

Route::Attempt Route::next() {
    if (is_round_over()) begin_round();
    if (!preferred_.empty()) {
        current_ = std::exchange(preferred_, {});
    } else {
        const std::optional<std::size_t> index = find_untried();
        MORTAR_ASSERT(index.has_value());
        current_ = addresses_[*index];
    }
    const auto listed = std::find(addresses_.begin(), addresses_.end(), current_);
    if (listed != addresses_.end()) {
        const auto index = static_cast<std::size_t>(listed - addresses_.begin());
        next_index_ = (index + 1) % addresses_.size();
    }
    const bool begins_round = tried_.empty();
    if (find_tried(current_) == nullptr) tried_.push_back({current_, false});
    return {current_, std::exchange(pause_, {}), has_others() && round_ < HURRIED_ROUNDS,
            begins_round};
}

bool Route::has_others() const {
    return std::any_of(addresses_.begin(), addresses_.end(),
                       [&](const std::string& address) { return address != current_; });
}

std::optional<std::size_t> Route::find_untried() const {
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
        const std::size_t index = (next_index_ + i) % addresses_.size();
        const bool is_tried = std::any_of(tried_.begin(), tried_.end(), [&](const Tried& tried) {
            return tried.address == addresses_[index];
        });
        if (!is_tried) return index;
    }
    return std::nullopt;
}

Route::Tried* Route::find_tried(std::string_view address) {
    const auto found = std::find_if(tried_.begin(), tried_.end(),
                                    [&](const Tried& tried) { return tried.address == address; });
    return found == tried_.end() ? nullptr : &*found;
}

void Route::on_end(const Ending& ending) {
    if (ending.was_good) {
        begin_anew(ending.was_short);
        const bool goes_elsewhere = ending.has_no_leader || (ending.was_silent && has_others());
        if (!goes_elsewhere) {
            preferred_ = current_;
            return;
        }
        tried_.push_back({current_, false});
    }
    if (!ending.has_no_leader) return;
    met_broker_ = true;
    if (Tried* tried = find_tried(current_); tried != nullptr) tried->has_answered = true;
    if (ending.hint) take_hint(*ending.hint);
}

void Route::begin_anew(bool was_short) {
    short_sessions_ = was_short ? short_sessions_ + 1 : 0;
    round_ = 0;
    election_rounds_ = 0;
    tried_.clear();
    followed_.clear();
    met_broker_ = false;
    preferred_.clear();
    pause_ = short_sessions_ > SHORT_SESSIONS_FREE
                 ? spread(RECONNECT_BASE)
                 : nanoseconds(rng_.between(0, RECONNECT_FIRST_MAX.ns));
}

void Route::begin_round() {
    tried_.clear();
    followed_.clear();
    ++round_;
    if (std::exchange(met_broker_, false)) ++election_rounds_;
    if (round_ == 0) {
        pause_ = nanoseconds(rng_.between(0, RECONNECT_FIRST_MAX.ns));
        return;
    }
    constexpr int DOUBLINGS_MAX = 6;  // 500 ms x 2^6 is above RECONNECT_MAX already
    const int elections = std::min(election_rounds_, ELECTION_ROUNDS_MAX);
    const int doublings = std::clamp(round_ - 1 - elections, 0, DOUBLINGS_MAX);
    if (doublings >= EPOCH_KEPT_DOUBLINGS) newest_epoch_ = LeaderEpoch();
    pause_ = spread(std::min(RECONNECT_BASE * (std::int64_t{1} << doublings), RECONNECT_MAX));
}

Duration Route::spread(Duration base) {
    const Duration jitter = nanoseconds(rng_.between(0, base.ns / 2));
    return std::min(base + jitter, RECONNECT_MAX);
}

void Route::take_hint(const LeaderHint& hint) {
    const bool is_old = hint.leader_epoch < newest_epoch_;
    newest_epoch_ = std::max(newest_epoch_, hint.leader_epoch);
    if (hint.address.empty() || hint.address == current_ || is_old) return;
    const Tried* tried = find_tried(hint.address);
    if (tried != nullptr && !tried->has_answered) return;
    const bool is_repeated =
        std::any_of(followed_.begin(), followed_.end(), [&](const LeaderHint& other) {
            return other.address == hint.address && other.leader_epoch == hint.leader_epoch;
        });
    if (is_repeated || followed_.size() >= HINTS_PER_ROUND_MAX) return;
    followed_.push_back(hint);
    preferred_ = hint.address;
}

}  // namespace mortar::client
