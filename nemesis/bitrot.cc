// bitrot: bits of a log file flip at rest: a cell that leaks, a misdirected write of another, firmware.
// Shape:  only on the run's victim, so that what the other brokers synced is good; not while another broker is blank, since
//         then the victim's copy may be one of two; and only in the older half of what a file holds, so that it is long
//         replicated. Without a victim nothing happens.
#include <algorithm>

#include "nemesis/nemesis.h"

namespace mortar::sim {
namespace {

constexpr std::uint64_t FLIPS_MAX = 3;
constexpr int TRIES = 32;
// Of a segment: another version there is a newer program's file, which no older one may touch (gate F3).
constexpr std::uint64_t VERSIONS_BEGIN = 4;
constexpr std::uint64_t VERSIONS_END = 6;
constexpr std::size_t STRIKES_MAX = 4;  // a run in which all is damaged shows nothing

class Bitrot final : public Nemesis {
  public:
    std::string_view name() const override { return "bitrot"; }

    void plan(const FaultParameters& parameters, Rng& rng,
              std::vector<Fault>& schedule) const override {
        if (parameters.victim.empty()) return;
        std::size_t strikes = 0;
        beat(parameters, rng, [&](MonoTime at, Duration) {
            const std::uint64_t draw = rng.next();
            if (++strikes > STRIKES_MAX) return;
            schedule.push_back({at, "bitrot", parameters.victim, Duration{}, draw});
        });
    }

    bool apply(const FaultScene& scene, SimNode& node, const Fault& fault) const override {
        Rng rng(fault.draw);
        SimDisk& disk = node.disk();
        for (SimNode* broker : scene.control.brokers) {
            if (broker != &node && !broker->disk().durable_read("replica/state")) return false;
        }
        std::vector<std::string> logs = disk.durable_files("topics");
        std::erase_if(logs, [](const std::string& path) { return !path.ends_with(".seg"); });
        if (logs.empty()) return false;
        const std::string& path = logs[static_cast<std::size_t>(rng.below(logs.size()))];
        const std::uint64_t flips = 1 + rng.below(FLIPS_MAX);
        bool flipped = false;
        for (std::uint64_t i = 0; i < flips; ++i)
            flipped = flip_one(disk, path, rng) || flipped;
        if (flipped && scene.control.on_rot) scene.control.on_rot(node, path);
        return flipped;
    }

  private:
    // Where something was written: zeros that wait for records are not worth a flip.
    static bool flip_one(SimDisk& disk, const std::string& path, Rng& rng) {
        const ByteVector bytes = disk.durable_read(path).value_or(ByteVector());
        const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                       [](std::byte byte) { return byte != std::byte{0}; });
        const auto old_bytes = static_cast<std::uint64_t>(bytes.rend() - last) / 2;
        if (old_bytes == 0) return false;
        for (int i = 0; i < TRIES; ++i) {
            const std::uint64_t file_offset = rng.below(old_bytes);
            if (bytes[static_cast<std::size_t>(file_offset)] == std::byte{0}) continue;
            if (file_offset >= VERSIONS_BEGIN && file_offset < VERSIONS_END) continue;
            return disk.flip_bit(path, file_offset, static_cast<unsigned>(rng.below(8)));
        }
        return false;
    }
};

}  // namespace

const Nemesis& bitrot_nemesis() {
    static const Bitrot BITROT;
    return BITROT;
}

}  // namespace mortar::sim
