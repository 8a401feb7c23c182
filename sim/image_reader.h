// image_reader: a second, independent reader of segment files for the checkers. It shares no code with core/log.
// Shape:  an Image is any view of a disk (durable, buffered) as names and bytes. A SeenRecord is one intact record found in
//         it. Digest: one number over key and value; payloads of the simulator are unique, so it stands for the bytes.
//         Recovery may copy the last records of a segment to a new one; a segment counts up to its successor's first sequence.
// Source: contract 7 (MMQS, record), design 6 (checker 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mortar::sim {

struct Image {
    std::function<std::vector<std::string>(const std::string& folder)> names;
    // At most count bytes from offset on; fewer at the end of the file; none when it is absent.
    std::function<std::vector<std::byte>(const std::string& path, std::uint64_t offset,
                                         std::uint64_t count)>
        read;
};

struct SeenRecord {
    std::uint64_t sequence = 0;
    std::uint64_t producer_id = 0;
    std::uint64_t producer_seq = 0;
    std::uint32_t leader_epoch = 0;
    std::uint64_t digest = 0;
    bool operator==(const SeenRecord&) const = default;
};

std::uint64_t payload_digest(const std::byte* key, std::size_t key_bytes, const std::byte* value,
                             std::size_t value_bytes);

// Follows the log of one partition in one image as it grows. forget() after anything but growth (a crash), or forget_from()
// the first segment that is not as it was.
class LogFollower {
  public:
    explicit LogFollower(std::string folder) : folder_(std::move(folder)) {}
    // Reads what is new in the image; returns the records found since.
    std::vector<SeenRecord> advance(const Image& image);
    const std::map<std::uint64_t, SeenRecord>& records() const { return records_; }
    void forget();
    void forget_from(std::uint64_t base_sequence);

  private:
    void advance_segment(const Image& image, const std::string& name, std::uint64_t end_sequence,
                         std::vector<SeenRecord>& found);

    std::string folder_;
    std::map<std::string, std::uint64_t> parsed_;  // segment name -> offset up to which it was read
    std::map<std::uint64_t, SeenRecord> records_;
};

// What a segment's file is named by; nothing of any other file.
std::optional<std::uint64_t> base_of_segment(const std::string& path);

// topics/<topic_id>/<partition>
std::string partition_folder(std::uint16_t topic_id, std::uint16_t partition);

}  // namespace mortar::sim
