// catalog: topics and groups as of a mutation_id: a pure function of the metadata log.
// Shape:    Mutation is one committed change; apply() is total and deterministic, so that every replica and every restart
//           reaches the same state. Ids are paired (source odd, twin even) and never reused; member_id neither.
// Owns:     its state. Pointers handed out live until the next apply.
// Errors:   validate: what the proposer is told (TOPIC_EXISTS_MISMATCH, GROUP_EXISTS_MISMATCH, UNKNOWN_TOPIC, QUOTA_EXCEEDED,
//           GROUP_MEMBER_LIMIT, INVALID_TOPIC, MUTATION_NOT_PACKABLE), and what only a caller's mistake or a race can
//           cause (UNKNOWN_GROUP, UNKNOWN_MEMBER, INVALID_ARGUMENT): never sent to a client as they are.
// Invariant: membership, assignment and ownership epochs move only here, and only up.
// Source:   contract T1-T5, G1-G5, design 5, wire-protocol 2.1.8.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace mortar {

inline constexpr std::uint16_t PARTITION_COUNT_MAX = 1024;
inline constexpr std::size_t TOPIC_NAME_BYTES_MAX =
    251;  // its twin "<name>.dlq" is a name of at most 255
inline constexpr std::size_t GROUP_NAME_BYTES_MAX = 255;
inline constexpr std::size_t TOPIC_PAIR_COUNT_MAX = 32767;
inline constexpr std::size_t GROUP_COUNT_MAX = 65535;
inline constexpr std::size_t GROUP_MEMBER_COUNT_MAX = 10;
inline constexpr std::size_t MUTATION_PAYLOAD_BYTES_MAX = 64 * 1024;
inline constexpr std::string_view DLQ_SUFFIX = ".dlq";

// Contract T1; dlq_allowed for look-ups and group names.
Result<void> check_topic_name(std::string_view name, bool dlq_allowed);
Result<void> check_group_name(std::string_view name);

struct Topic {
    TopicId topic_id;
    std::string name;
    std::uint16_t partition_count = 0;
    MutationId created_by;
    LeaderEpoch created_epoch;  // `topics list` shows it
    bool is_twin() const { return topic_id.value % 2 == 0; }
    bool operator==(const Topic&) const = default;
};

struct Member {
    MemberId member_id;
    MembershipEpoch joined_at;
    bool operator==(const Member&) const = default;
};

// One owner a partition at a time; ownership_epoch fences the one before.
struct Ownership {
    MemberId owner;  // 0 = nobody
    OwnershipEpoch ownership_epoch;
    bool operator==(const Ownership&) const = default;
};

struct ConsumerGroup {
    GroupId group_id;
    std::string name;
    TopicId topic_id;
    std::vector<Sequence>
        start_after;  // per partition: the cursor's start; delivery begins behind it
    MembershipEpoch membership_epoch;
    AssignmentEpoch assignment_epoch;
    std::map<MemberId, Member> members;
    std::vector<Ownership> ownership;  // per partition
    MutationId created_by;
    bool operator==(const ConsumerGroup&) const = default;
};

// --- mutations, one struct each; the type number on disk is its place in MutationBody + 1
struct TopicCreated {
    std::string name;
    std::uint16_t partition_count = 0;
    bool operator==(const TopicCreated&) const = default;
};
struct TopicDeleted {  // the source's id; its twin and the groups of both go too
    TopicId topic_id;
    bool operator==(const TopicDeleted&) const = default;
};
struct GroupCreated {
    std::string name;
    TopicId topic_id;
    std::vector<Sequence> start_after;
    bool operator==(const GroupCreated&) const = default;
};
struct GroupDeleted {  // only without members
    GroupId group_id;
    bool operator==(const GroupDeleted&) const = default;
};
struct MemberJoined {  // the member id is the mutation's own id: never reused
    GroupId group_id;
    std::vector<MemberId>
        owners;  // per partition, the assignment that this join leads to (0 = the joining member)
    bool operator==(const MemberJoined&) const = default;
};
struct MembersLeft {
    GroupId group_id;
    std::vector<MemberId> left;
    std::vector<MemberId> owners;  // per partition afterwards, 0 = nobody
    bool operator==(const MembersLeft&) const = default;
};
using MutationBody =
    std::variant<TopicCreated, TopicDeleted, GroupCreated, GroupDeleted, MemberJoined, MembersLeft>;

struct Mutation {
    MutationId mutation_id;
    LeaderEpoch leader_epoch;
    std::uint64_t timestamp_unix_ms = 0;
    MutationBody body;
    bool operator==(const Mutation&) const = default;
};

// Payload bytes of a record (contract 7, MMML), without the record head. decode is strict: DAMAGED.
void encode_mutation(ByteVector& into, const MutationBody& body);
Result<MutationBody> decode_mutation(std::uint16_t type, ByteSpan payload);
std::uint16_t mutation_type(const MutationBody& body);
// "topic_created" and so on, for people.
std::string_view mutation_name(const MutationBody& body);

// MUTATION_NOT_PACKABLE when no metadata record can hold it.
Result<void> check_packable(const MutationBody& body);

class Catalog {
  public:
    // May this be committed on top of the present state? Everything apply() asserts is checked here first.
    Result<void> validate(const MutationBody& body) const;
    // mutation_id is last_mutation() + 1, and validate(body) was OK.
    void apply(const Mutation& mutation);
    MutationId last_mutation() const { return last_mutation_; }
    LeaderEpoch last_leader_epoch() const { return last_leader_epoch_; }  // of the last mutation

    const Topic* find_topic(std::string_view name) const;  // twins by their own name too
    const Topic* find_topic(TopicId topic_id) const;
    const ConsumerGroup* find_group(std::string_view name) const;
    const ConsumerGroup* find_group(GroupId group_id) const;
    const std::map<TopicId, Topic>& topics() const { return topics_; }  // twins included
    const std::map<GroupId, ConsumerGroup>& groups() const { return groups_; }
    // Now or earlier. What was given out and is not there was deleted, for ever.
    bool was_given_out(TopicId topic_id) const;  // twins too
    bool was_given_out(GroupId group_id) const;

    // The whole state (MMMS state part); decode(encode(x)) == x, byte for byte.
    void encode(ByteVector& into) const;
    static Result<Catalog> decode(ByteSpan state);

  private:
    Result<void> check(const TopicCreated& body) const;
    Result<void> check(const TopicDeleted& body) const;
    Result<void> check(const GroupCreated& body) const;
    Result<void> check(const GroupDeleted& body) const;
    Result<void> check(const MemberJoined& body) const;
    Result<void> check(const MembersLeft& body) const;
    Result<void> check_owners(const ConsumerGroup& group, const std::vector<MemberId>& owners,
                              const std::vector<MemberId>& left) const;
    void take(const Mutation& mutation, const TopicCreated& body);
    void take(const Mutation& mutation, const TopicDeleted& body);
    void take(const Mutation& mutation, const GroupCreated& body);
    void take(const Mutation& mutation, const GroupDeleted& body);
    void take(const Mutation& mutation, const MemberJoined& body);
    void take(const Mutation& mutation, const MembersLeft& body);
    void insert_pair(Topic source);
    void insert_group(ConsumerGroup group);
    void remove_topic(TopicId topic_id);
    void remove_group(GroupId group_id);
    Result<void> decode_topic(ByteReader& reader);
    Result<void> decode_group(ByteReader& reader);

    std::map<TopicId, Topic> topics_;
    std::map<std::string, TopicId, std::less<>> topic_by_name_;
    std::map<GroupId, ConsumerGroup> groups_;
    std::map<std::string, GroupId, std::less<>> group_by_name_;
    std::uint16_t next_pair_ = 0;  // topic pairs ever made
    std::uint32_t next_group_ = 1;
    MutationId last_mutation_;
    LeaderEpoch last_leader_epoch_;
};

}  // namespace mortar
