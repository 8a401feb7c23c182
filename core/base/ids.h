// ids: every number that names something is a type of its own; comparing two kinds does not compile.
// Shape:  StrongId<Tag, Rep>: explicit both ways (construct, .value), ordered, hash by value.
// Units:  Sequence is a place in a partition and counts from 1 (0 = none); PartitionIndex counts from 0.
// Source: core-concepts 8 (the epochs), style (six epochs, six types), contract D8 (delivery ids).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace mortar {

template <class Tag, class Rep>
struct StrongId {
    using rep = Rep;
    Rep value = 0;

    constexpr StrongId() = default;
    constexpr explicit StrongId(Rep v) : value(v) {}
    constexpr auto operator<=>(const StrongId&) const = default;
    constexpr StrongId next() const { return StrongId(static_cast<Rep>(value + 1)); }
    constexpr StrongId plus(Rep count) const { return StrongId(static_cast<Rep>(value + count)); }
};

using NodeId = StrongId<struct NodeIdTag, std::uint16_t>;
using TopicId = StrongId<struct TopicIdTag, std::uint16_t>;
using PartitionIndex = StrongId<struct PartitionIndexTag, std::uint16_t>;
using Sequence = StrongId<struct SequenceTag, std::uint64_t>;
using ProducerId = StrongId<struct ProducerIdTag, std::uint64_t>;
using ProducerSeq = StrongId<struct ProducerSeqTag, std::uint64_t>;
using GroupId = StrongId<struct GroupIdTag, std::uint16_t>;
using MemberId = StrongId<struct MemberIdTag, std::uint64_t>;
using SubscriptionId = StrongId<struct SubscriptionIdTag, std::uint16_t>;
using DeliveryId = StrongId<struct DeliveryIdTag, std::uint64_t>;
using NoticeId = StrongId<struct NoticeIdTag, std::uint64_t>;

// The epochs. Each fences one kind of actor; they are compared only with their own kind.
using LeaderEpoch = StrongId<struct LeaderEpochTag, std::uint64_t>;
using MembershipEpoch = StrongId<struct MembershipEpochTag, std::uint32_t>;
using AssignmentEpoch = StrongId<struct AssignmentEpochTag, std::uint32_t>;
using InstalledAssignmentEpoch = StrongId<struct InstalledAssignmentEpochTag, std::uint32_t>;
using OwnershipEpoch = StrongId<struct OwnershipEpochTag, std::uint64_t>;
using MutationId = StrongId<struct MutationIdTag, std::uint64_t>;

// Place of s behind base: s == base gives 0. Both must come from one partition and s >= base.
constexpr std::uint64_t sequence_distance(Sequence base, Sequence s) {
    return s.value - base.value;
}

inline constexpr PartitionIndex ANY_PARTITION{0xFFFF};

// A partition of a topic; the key of everything that exists once a partition.
struct PartitionKey {
    TopicId topic_id;
    PartitionIndex partition;
    constexpr auto operator<=>(const PartitionKey&) const = default;
};

}  // namespace mortar

template <class Tag, class Rep>
struct std::hash<mortar::StrongId<Tag, Rep>> {
    std::size_t operator()(const mortar::StrongId<Tag, Rep>& id) const {
        return std::hash<Rep>()(id.value);
    }
};
template <>
struct std::hash<mortar::PartitionKey> {
    std::size_t operator()(const mortar::PartitionKey& key) const {
        return std::hash<std::uint32_t>()(std::uint32_t{key.topic_id.value} << 16 |
                                          key.partition.value);
    }
};
