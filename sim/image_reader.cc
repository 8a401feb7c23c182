#include "sim/image_reader.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/base/hash.h"

namespace mortar::sim {
namespace {

constexpr std::size_t HEAD_BYTES = 6;
constexpr std::size_t FIXED_BYTES = 56;
constexpr std::uint64_t SECTOR_BYTES = 512;
constexpr std::uint64_t GAP_BYTES_MIN = 4;
constexpr std::uint64_t INNER_GAP_BYTES = 8;
constexpr std::uint64_t WINDOW_BYTES = 16 * 1024;

std::uint64_t number(const std::vector<std::byte>& bytes, std::size_t at, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i)
        value = value << 8 | static_cast<std::uint64_t>(bytes[at + i]);
    return value;
}

}  // namespace

std::uint64_t payload_digest(const std::byte* key, std::size_t key_bytes, const std::byte* value,
                             std::size_t value_bytes) {
    std::uint64_t hash = 14695981039346656037u;
    const auto mix = [&hash](std::uint64_t word) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    };
    const auto mix_all = [&mix](const std::byte* bytes, std::size_t count) {
        mix(count);
        for (std::size_t at = 0; at < count; at += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes + at, std::min<std::size_t>(8, count - at));
            mix(word);
        }
    };
    mix_all(key, key_bytes);
    mix_all(value, value_bytes);
    return hash;
}

std::string partition_folder(std::uint16_t topic_id, std::uint16_t partition) {
    return "topics/" + std::to_string(topic_id) + "/" + std::to_string(partition);
}

std::optional<std::uint64_t> base_of_segment(const std::string& path) {
    constexpr std::size_t DIGITS = 20;
    constexpr std::string_view ENDING = ".seg";
    if (path.size() < DIGITS + ENDING.size() || !path.ends_with(ENDING)) return std::nullopt;
    const std::size_t begin = path.size() - DIGITS - ENDING.size();
    if (begin != 0 && path[begin - 1] != '/') return std::nullopt;
    return std::strtoull(path.c_str() + begin, nullptr, 10);
}

void LogFollower::forget() {
    parsed_.clear();
    records_.clear();
}

void LogFollower::forget_from(std::uint64_t base_sequence) {
    std::erase_if(parsed_, [base_sequence](const auto& each) {
        return base_of_segment(each.first).value() >= base_sequence;
    });
    records_.erase(records_.lower_bound(base_sequence), records_.end());
}

std::vector<SeenRecord> LogFollower::advance(const Image& image) {
    std::vector<SeenRecord> found;
    std::vector<std::string> segments;
    for (const std::string& name : image.names(folder_)) {
        if (base_of_segment(name)) segments.push_back(name);
    }
    for (std::size_t i = 0; i < segments.size(); ++i) {
        // A closed segment that was read once does not grow any more once its successor was read too.
        const bool closed = i + 1 < segments.size() && parsed_.contains(segments[i + 1]);
        const std::uint64_t end_sequence =
            i + 1 < segments.size() ? base_of_segment(segments[i + 1]).value() : UINT64_MAX;
        if (!closed) advance_segment(image, segments[i], end_sequence, found);
    }
    return found;
}

void LogFollower::advance_segment(const Image& image, const std::string& name,
                                  std::uint64_t end_sequence, std::vector<SeenRecord>& found) {
    const std::string path = folder_ + "/" + name;
    const auto at = parsed_.find(name);
    std::uint64_t offset = at == parsed_.end() ? HEAD_BYTES : at->second;
    std::uint64_t window_bytes = WINDOW_BYTES;
    while (true) {
        const std::vector<std::byte> window = image.read(path, offset, window_bytes);
        std::size_t in = 0;
        bool needs_more = false;
        std::size_t zero_skipped_to = 0;
        // Up to the last intact record: the zeros behind it may be filled later.
        std::uint64_t after_last = offset;
        while (window.size() - in >= 4) {
            const std::uint64_t len = number(window, in, 4);
            if (len == 0) {
                // Zeros fill up to the next sector; at a sector's start they set a later record of the same write apart.
                const std::uint64_t here = offset + in;
                const std::uint64_t next =
                    here % SECTOR_BYTES == 0
                        ? here + INNER_GAP_BYTES
                        : (here + GAP_BYTES_MIN + SECTOR_BYTES - 1) / SECTOR_BYTES * SECTOR_BYTES;
                const bool second_zero = in == zero_skipped_to && in != 0;
                if (second_zero || next - offset > window.size()) break;
                in = static_cast<std::size_t>(next - offset);
                zero_skipped_to = in;
                continue;
            }
            if (len + 4 > window.size() - in) {
                needs_more = true;
                break;
            }
            const std::size_t record_bytes = static_cast<std::size_t>(len) + 4;
            const std::size_t key_bytes = static_cast<std::size_t>(number(window, in + 10, 2));
            if (record_bytes < FIXED_BYTES + key_bytes) break;
            const ByteSpan covered(window.data() + in + 8, record_bytes - 8);
            if (crc32c(covered) != number(window, in + 4, 4)) break;
            SeenRecord record;
            record.sequence = number(window, in + 16, 8);
            record.producer_id = number(window, in + 24, 8);
            record.producer_seq = number(window, in + 32, 8);
            record.leader_epoch = static_cast<std::uint32_t>(number(window, in + 48, 4));
            record.digest = payload_digest(window.data() + in + FIXED_BYTES, key_bytes,
                                           window.data() + in + FIXED_BYTES + key_bytes,
                                           record_bytes - FIXED_BYTES - key_bytes);
            if (record.sequence < end_sequence) {
                records_.emplace(record.sequence, record);
                found.push_back(record);
            }
            in += record_bytes;
            after_last = offset + in;
        }
        const bool progressed = after_last != offset;
        offset = after_last;
        parsed_[name] = offset;
        if (window.size() < window_bytes && !needs_more) return;  // end of the file
        if (needs_more && !progressed) {
            if (window.size() < window_bytes) return;  // the record is cut by the end of the file
            window_bytes *= 2;
            continue;
        }
        if (!progressed) return;  // a whole window of zeros, or damage: nothing more is readable
        window_bytes = WINDOW_BYTES;
    }
}

}  // namespace mortar::sim
