#include "core/meta/catalog.h"

#include <algorithm>
#include <string_view>

#include "core/base/utf8.h"

namespace mortar {
namespace {
constexpr std::size_t NAME_LENGTH_MAX = 0xFFFF;  // a u16 on disk
// Bytes of a partition's entry in the state of a group: start, owner, ownership_epoch.
constexpr std::size_t PARTITION_STATE_BYTES = 24;

Error damaged(std::string detail) {
    return make_error(ErrorCode::DAMAGED, std::move(detail));
}

// --- names

Error bad_name(std::string_view kind, std::string_view why) {
    return make_error(ErrorCode::INVALID_TOPIC,
                      std::string("bad ").append(kind).append(" name: ").append(why));
}

// The rules that topics and groups share, the length aside.
Result<void> check_characters(std::string_view kind, std::string_view name) {
    if (name.front() == '$') return bad_name(kind, "it begins with '$'");
    bool token_is_empty = true;
    while (!name.empty()) {
        std::uint32_t code_point = 0;
        if (!take_code_point(name, code_point)) return bad_name(kind, "it is not UTF-8");
        if (code_point <= 0x20 || (code_point >= 0x7F && code_point <= 0x9F)) {
            return bad_name(kind, "it holds a space or a control character");
        }
        if (code_point == '*' || code_point == '>' || code_point == '+' || code_point == '#') {
            return bad_name(kind, "it holds one of * > + #");
        }
        if (code_point != '.') {
            token_is_empty = false;
            continue;
        }
        if (token_is_empty)
            return bad_name(kind, "it has an empty token; tokens are separated by '.'");
        token_is_empty = true;
    }
    if (token_is_empty) return bad_name(kind, "it has an empty token; tokens are separated by '.'");
    return {};
}

// --- bytes

void put_name(ByteWriter& writer, std::string_view name) {
    MORTAR_ASSERT(name.size() <= NAME_LENGTH_MAX);
    writer.u16(static_cast<std::uint16_t>(name.size()));
    writer.bytes(as_byte_span(name));
}
std::string take_name(ByteReader& reader) {
    const std::uint16_t size = reader.u16();
    return std::string(as_string_view(reader.bytes(size)));
}

template <class Id>
void put_ids(ByteWriter& writer, const std::vector<Id>& ids) {
    writer.u16(static_cast<std::uint16_t>(ids.size()));
    for (const Id id : ids)
        writer.id(id);
}
template <class Id>
std::vector<Id> take_ids(ByteReader& reader) {
    const std::size_t count = reader.u16();
    std::vector<Id> ids;
    if (count * sizeof(typename Id::rep) > reader.remaining()) {
        (void)reader.bytes(reader.remaining() + 1);  // marks it failed
        return ids;
    }
    ids.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
        ids.push_back(reader.id<Id>());
    return ids;
}

void put(ByteWriter& writer, const TopicCreated& body) {
    put_name(writer, body.name);
    writer.u16(body.partition_count);
}
void put(ByteWriter& writer, const TopicDeleted& body) {
    writer.id(body.topic_id);
}
void put(ByteWriter& writer, const GroupCreated& body) {
    put_name(writer, body.name);
    writer.id(body.topic_id);
    put_ids(writer, body.start_after);
}
void put(ByteWriter& writer, const GroupDeleted& body) {
    writer.id(body.group_id);
}
void put(ByteWriter& writer, const MemberJoined& body) {
    writer.id(body.group_id);
    put_ids(writer, body.owners);
}
void put(ByteWriter& writer, const MembersLeft& body) {
    writer.id(body.group_id);
    put_ids(writer, body.left);
    put_ids(writer, body.owners);
}

void take_body(ByteReader& reader, TopicCreated& body) {
    body.name = take_name(reader);
    body.partition_count = reader.u16();
}
void take_body(ByteReader& reader, TopicDeleted& body) {
    body.topic_id = reader.id<TopicId>();
}
void take_body(ByteReader& reader, GroupCreated& body) {
    body.name = take_name(reader);
    body.topic_id = reader.id<TopicId>();
    body.start_after = take_ids<Sequence>(reader);
}
void take_body(ByteReader& reader, GroupDeleted& body) {
    body.group_id = reader.id<GroupId>();
}
void take_body(ByteReader& reader, MemberJoined& body) {
    body.group_id = reader.id<GroupId>();
    body.owners = take_ids<MemberId>(reader);
}
void take_body(ByteReader& reader, MembersLeft& body) {
    body.group_id = reader.id<GroupId>();
    body.left = take_ids<MemberId>(reader);
    body.owners = take_ids<MemberId>(reader);
}

template <class Body>
Result<MutationBody> decode_as(ByteSpan payload) {
    ByteReader reader(payload);
    Body body;
    take_body(reader, body);
    if (!reader.finished()) return damaged("the payload of a mutation has the wrong length");
    return MutationBody(std::move(body));
}

// Upper bound of the variable part, before anything is copied or squeezed into a length field.
struct PayloadSize {
    std::size_t operator()(const TopicCreated& body) const { return 4 + body.name.size(); }
    std::size_t operator()(const TopicDeleted&) const { return 2; }
    std::size_t operator()(const GroupCreated& body) const {
        return 6 + body.name.size() + 8 * body.start_after.size();
    }
    std::size_t operator()(const GroupDeleted&) const { return 2; }
    std::size_t operator()(const MemberJoined& body) const { return 4 + 8 * body.owners.size(); }
    std::size_t operator()(const MembersLeft& body) const {
        return 6 + 8 * (body.left.size() + body.owners.size());
    }
};

// Owners after a change: assignment_epoch moves when anything did, ownership_epoch of each partition that goes to
// another member (never for one that merely lost its owner: nobody could use the new number).
void set_owners(ConsumerGroup& group, const std::vector<MemberId>& owners, MemberId for_zero) {
    bool moved = false;
    for (std::size_t i = 0; i < owners.size(); ++i) {
        const MemberId owner = owners[i] == MemberId{} ? for_zero : owners[i];
        Ownership& ownership = group.ownership[i];
        if (ownership.owner == owner) continue;
        moved = true;
        ownership.owner = owner;
        if (owner != MemberId{}) ownership.ownership_epoch = ownership.ownership_epoch.next();
    }
    if (moved) group.assignment_epoch = group.assignment_epoch.next();
}

TopicId source_of_pair(std::uint16_t pair) {
    return TopicId(static_cast<std::uint16_t>(2 * pair + 1));
}
}  // namespace

Result<void> check_topic_name(std::string_view name, bool dlq_allowed) {
    if (name.empty()) return bad_name("topic", "it is empty");
    const bool is_dlq = name.ends_with(DLQ_SUFFIX);
    if (is_dlq && !dlq_allowed) {
        return bad_name("topic", "names that end in .dlq belong to the dead letters of a topic");
    }
    if (name.size() > TOPIC_NAME_BYTES_MAX + (is_dlq ? DLQ_SUFFIX.size() : 0)) {
        return bad_name("topic", "it is longer than 251 bytes");
    }
    return check_characters("topic", name);
}

Result<void> check_group_name(std::string_view name) {
    if (name.empty()) return bad_name("group", "it is empty");
    if (name.size() > GROUP_NAME_BYTES_MAX) return bad_name("group", "it is longer than 255 bytes");
    return check_characters("group", name);
}

void encode_mutation(ByteVector& into, const MutationBody& body) {
    ByteWriter writer(into);
    std::visit([&writer](const auto& each) { put(writer, each); }, body);
}

Result<MutationBody> decode_mutation(std::uint16_t type, ByteSpan payload) {
    switch (type) {
        case 1:
            return decode_as<TopicCreated>(payload);
        case 2:
            return decode_as<TopicDeleted>(payload);
        case 3:
            return decode_as<GroupCreated>(payload);
        case 4:
            return decode_as<GroupDeleted>(payload);
        case 5:
            return decode_as<MemberJoined>(payload);
        case 6:
            return decode_as<MembersLeft>(payload);
        default:
            return damaged("unknown type of mutation: " + std::to_string(type));
    }
}

std::uint16_t mutation_type(const MutationBody& body) {
    return static_cast<std::uint16_t>(body.index() + 1);
}

std::string_view mutation_name(const MutationBody& body) {
    static constexpr std::string_view NAMES[] = {"topic_created", "topic_deleted", "group_created",
                                                 "group_deleted", "member_joined", "members_left"};
    static_assert(std::size(NAMES) == std::variant_size_v<MutationBody>);
    return NAMES[body.index()];
}

// --- validate

Result<void> check_packable(const MutationBody& body) {
    if (std::visit(PayloadSize{}, body) <= MUTATION_PAYLOAD_BYTES_MAX) return {};
    return make_error(ErrorCode::MUTATION_NOT_PACKABLE,
                      "the change does not fit in one metadata record of 65536 bytes");
}

Result<void> Catalog::validate(const MutationBody& body) const {
    // First: a name that fits in no record is told so, before it is judged as a name.
    MORTAR_TRY(check_packable(body));
    return std::visit([this](const auto& each) { return check(each); }, body);
}

Result<void> Catalog::check(const TopicCreated& body) const {
    MORTAR_TRY(check_topic_name(body.name, false));
    if (body.partition_count == 0) {
        return make_error(ErrorCode::INVALID_ARGUMENT, "a topic has at least one partition");
    }
    if (body.partition_count > PARTITION_COUNT_MAX) {
        return make_error(ErrorCode::QUOTA_EXCEEDED, "a topic has at most 1024 partitions");
    }
    if (const Topic* topic = find_topic(std::string_view(body.name)); topic != nullptr) {
        return make_error(
            ErrorCode::TOPIC_EXISTS_MISMATCH,
            "the topic exists with " + std::to_string(topic->partition_count) + " partitions");
    }
    if (next_pair_ >= TOPIC_PAIR_COUNT_MAX) {
        return make_error(ErrorCode::QUOTA_EXCEEDED,
                          "all 32767 pairs of topic ids are used up; ids are never reused");
    }
    return {};
}

Result<void> Catalog::check(const TopicDeleted& body) const {
    const Topic* topic = find_topic(body.topic_id);
    if (topic == nullptr) return make_error(ErrorCode::UNKNOWN_TOPIC, "no topic has that id");
    if (topic->is_twin()) {
        return make_error(ErrorCode::INVALID_TOPIC, "dead letters are deleted with their topic");
    }
    return {};
}

Result<void> Catalog::check(const GroupCreated& body) const {
    MORTAR_TRY(check_group_name(body.name));
    const Topic* topic = find_topic(body.topic_id);
    if (topic == nullptr) return make_error(ErrorCode::UNKNOWN_TOPIC, "no topic has that id");
    if (find_group(std::string_view(body.name)) != nullptr) {
        return make_error(ErrorCode::GROUP_EXISTS_MISMATCH, "a group of that name exists");
    }
    if (body.start_after.size() != topic->partition_count) {
        return make_error(ErrorCode::INVALID_ARGUMENT, "one start for each partition");
    }
    if (next_group_ > GROUP_COUNT_MAX) {
        return make_error(ErrorCode::QUOTA_EXCEEDED,
                          "all 65535 group ids are used up; ids are never reused");
    }
    return {};
}

Result<void> Catalog::check(const GroupDeleted& body) const {
    const ConsumerGroup* group = find_group(body.group_id);
    if (group == nullptr) return make_error(ErrorCode::UNKNOWN_GROUP, "no group has that id");
    if (!group->members.empty()) {
        return make_error(ErrorCode::GROUP_EXISTS_MISMATCH, "the group has members");
    }
    return {};
}

Result<void> Catalog::check(const MemberJoined& body) const {
    const ConsumerGroup* group = find_group(body.group_id);
    if (group == nullptr) return make_error(ErrorCode::UNKNOWN_GROUP, "no group has that id");
    if (group->members.size() >= GROUP_MEMBER_COUNT_MAX) {
        return make_error(ErrorCode::GROUP_MEMBER_LIMIT, "a group has at most 10 members");
    }
    return check_owners(*group, body.owners, {});
}

Result<void> Catalog::check(const MembersLeft& body) const {
    const ConsumerGroup* group = find_group(body.group_id);
    if (group == nullptr) return make_error(ErrorCode::UNKNOWN_GROUP, "no group has that id");
    if (body.left.empty()) return make_error(ErrorCode::INVALID_ARGUMENT, "nobody left");
    for (auto at = body.left.begin(); at != body.left.end(); ++at) {
        if (!group->members.contains(*at)) {
            return make_error(ErrorCode::UNKNOWN_MEMBER, "one who left is not a member");
        }
        if (std::find(body.left.begin(), at, *at) != at) {
            return make_error(ErrorCode::INVALID_ARGUMENT, "one member left twice");
        }
    }
    return check_owners(*group, body.owners, body.left);
}

Result<void> Catalog::check_owners(const ConsumerGroup& group, const std::vector<MemberId>& owners,
                                   const std::vector<MemberId>& left) const {
    if (owners.size() != group.ownership.size()) {
        return make_error(ErrorCode::INVALID_ARGUMENT, "one owner for each partition");
    }
    for (const MemberId owner : owners) {
        if (owner == MemberId{}) continue;
        const bool gone = std::find(left.begin(), left.end(), owner) != left.end();
        if (gone || !group.members.contains(owner)) {
            return make_error(ErrorCode::UNKNOWN_MEMBER, "an owner is not a member");
        }
    }
    return {};
}

// --- apply

void Catalog::apply(const Mutation& mutation) {
    MORTAR_ASSERT(mutation.mutation_id == last_mutation_.next());
    MORTAR_ASSERT(mutation.leader_epoch >= last_leader_epoch_);
    MORTAR_ASSERT(validate(mutation.body).ok());
    std::visit([&](const auto& each) { take(mutation, each); }, mutation.body);
    last_mutation_ = mutation.mutation_id;
    last_leader_epoch_ = mutation.leader_epoch;
}

void Catalog::take(const Mutation& mutation, const TopicCreated& body) {
    insert_pair(Topic{source_of_pair(next_pair_), body.name, body.partition_count,
                      mutation.mutation_id, mutation.leader_epoch});
    ++next_pair_;
}

void Catalog::take(const Mutation&, const TopicDeleted& body) {
    const TopicId twin = body.topic_id.next();
    std::erase_if(group_by_name_, [&](const auto& entry) {
        const TopicId topic_id = groups_.at(entry.second).topic_id;
        return topic_id == body.topic_id || topic_id == twin;
    });
    std::erase_if(groups_, [&](const auto& entry) {
        return entry.second.topic_id == body.topic_id || entry.second.topic_id == twin;
    });
    remove_topic(body.topic_id);
    remove_topic(twin);
}

void Catalog::take(const Mutation& mutation, const GroupCreated& body) {
    ConsumerGroup group;
    group.group_id = GroupId(static_cast<std::uint16_t>(next_group_));
    group.name = body.name;
    group.topic_id = body.topic_id;
    group.start_after = body.start_after;
    group.ownership.resize(body.start_after.size());
    group.created_by = mutation.mutation_id;
    insert_group(std::move(group));
    ++next_group_;
}

void Catalog::take(const Mutation&, const GroupDeleted& body) {
    remove_group(body.group_id);
}

void Catalog::take(const Mutation& mutation, const MemberJoined& body) {
    ConsumerGroup& group = groups_.at(body.group_id);
    const MemberId member_id(mutation.mutation_id.value);
    group.membership_epoch = group.membership_epoch.next();
    group.members.emplace(member_id, Member{member_id, group.membership_epoch});
    set_owners(group, body.owners, member_id);
}

void Catalog::take(const Mutation&, const MembersLeft& body) {
    ConsumerGroup& group = groups_.at(body.group_id);
    group.membership_epoch = group.membership_epoch.next();
    for (const MemberId member_id : body.left)
        group.members.erase(member_id);
    set_owners(group, body.owners, MemberId{});
}

void Catalog::insert_pair(Topic source) {
    Topic twin = source;
    twin.topic_id = source.topic_id.next();
    twin.name.append(DLQ_SUFFIX);
    MORTAR_ASSERT(!source.is_twin());
    MORTAR_ASSERT(twin.is_twin());
    for (Topic* topic : {&source, &twin}) {
        topic_by_name_.emplace(topic->name, topic->topic_id);
        topics_.emplace(topic->topic_id, std::move(*topic));
    }
    MORTAR_ASSERT(topics_.size() == topic_by_name_.size());
}

void Catalog::insert_group(ConsumerGroup group) {
    group_by_name_.emplace(group.name, group.group_id);
    groups_.emplace(group.group_id, std::move(group));
    MORTAR_ASSERT(groups_.size() == group_by_name_.size());
}

void Catalog::remove_topic(TopicId topic_id) {
    const auto at = topics_.find(topic_id);
    MORTAR_ASSERT(at != topics_.end());
    topic_by_name_.erase(at->second.name);
    topics_.erase(at);
}

void Catalog::remove_group(GroupId group_id) {
    const auto at = groups_.find(group_id);
    MORTAR_ASSERT(at != groups_.end());
    group_by_name_.erase(at->second.name);
    groups_.erase(at);
}

// --- look-ups

const Topic* Catalog::find_topic(std::string_view name) const {
    const auto at = topic_by_name_.find(name);
    return at == topic_by_name_.end() ? nullptr : find_topic(at->second);
}
const Topic* Catalog::find_topic(TopicId topic_id) const {
    const auto at = topics_.find(topic_id);
    return at == topics_.end() ? nullptr : &at->second;
}
const ConsumerGroup* Catalog::find_group(std::string_view name) const {
    const auto at = group_by_name_.find(name);
    return at == group_by_name_.end() ? nullptr : find_group(at->second);
}
const ConsumerGroup* Catalog::find_group(GroupId group_id) const {
    const auto at = groups_.find(group_id);
    return at == groups_.end() ? nullptr : &at->second;
}

bool Catalog::was_given_out(TopicId topic_id) const {
    return topic_id.value > 0 && topic_id.value <= 2 * next_pair_;
}
bool Catalog::was_given_out(GroupId group_id) const {
    return group_id.value > 0 && group_id.value < next_group_;
}

// --- the whole state
// u64 last_mutation, u64 last_leader_epoch, u16 pairs ever made, u32 next group id;
// u32 count of source topics, ascending: u16 id, name, u16 partition_count, u64 created_by, u64 created_epoch;
// u32 count of groups, ascending: u16 id, name, u16 topic_id, u32 membership_epoch, u32 assignment_epoch,
//   u64 created_by, u16 partition count x (u64 start_after, u64 owner, u64 ownership_epoch),
//   u8 member count, ascending, x (u64 member_id, u32 joined_at). A name is u16 length and bytes.

void Catalog::encode(ByteVector& into) const {
    ByteWriter writer(into);
    writer.id(last_mutation_);
    writer.id(last_leader_epoch_);
    writer.u16(next_pair_);
    writer.u32(next_group_);
    writer.u32(static_cast<std::uint32_t>(topics_.size() / 2));
    for (const auto& [topic_id, topic] : topics_) {
        if (topic.is_twin()) continue;  // follows from its source
        writer.id(topic_id);
        put_name(writer, topic.name);
        writer.u16(topic.partition_count);
        writer.id(topic.created_by);
        writer.id(topic.created_epoch);
    }
    writer.u32(static_cast<std::uint32_t>(groups_.size()));
    for (const auto& [group_id, group] : groups_) {
        writer.id(group_id);
        put_name(writer, group.name);
        writer.id(group.topic_id);
        writer.id(group.membership_epoch);
        writer.id(group.assignment_epoch);
        writer.id(group.created_by);
        writer.u16(static_cast<std::uint16_t>(group.ownership.size()));
        for (std::size_t i = 0; i < group.ownership.size(); ++i) {
            writer.id(group.start_after[i]);
            writer.id(group.ownership[i].owner);
            writer.id(group.ownership[i].ownership_epoch);
        }
        writer.u8(static_cast<std::uint8_t>(group.members.size()));
        for (const auto& [member_id, member] : group.members) {
            writer.id(member_id);
            writer.id(member.joined_at);
        }
    }
}

Result<Catalog> Catalog::decode(ByteSpan state) {
    ByteReader reader(state);
    Catalog catalog;
    catalog.last_mutation_ = reader.id<MutationId>();
    catalog.last_leader_epoch_ = reader.id<LeaderEpoch>();
    catalog.next_pair_ = reader.u16();
    catalog.next_group_ = reader.u32();
    if (catalog.next_pair_ > TOPIC_PAIR_COUNT_MAX || catalog.next_group_ == 0 ||
        catalog.next_group_ > GROUP_COUNT_MAX + 1) {
        return damaged("the state has an id counter out of range");
    }
    for (std::uint32_t left = reader.u32(); left > 0 && !reader.failed(); --left) {
        MORTAR_TRY(catalog.decode_topic(reader));
    }
    for (std::uint32_t left = reader.u32(); left > 0 && !reader.failed(); --left) {
        MORTAR_TRY(catalog.decode_group(reader));
    }
    if (!reader.finished()) return damaged("the state has the wrong length");
    return catalog;
}

Result<void> Catalog::decode_topic(ByteReader& reader) {
    Topic topic;
    topic.topic_id = reader.id<TopicId>();
    topic.name = take_name(reader);
    topic.partition_count = reader.u16();
    topic.created_by = reader.id<MutationId>();
    topic.created_epoch = reader.id<LeaderEpoch>();
    if (reader.failed()) return damaged("the state ends within a topic");
    const bool ascending = topics_.empty() || topics_.rbegin()->first < topic.topic_id;
    const bool sound =
        ascending && !topic.is_twin() && topic.topic_id.value < 2 * next_pair_ &&
        check_topic_name(topic.name, false).ok() && topic.partition_count > 0 &&
        topic.partition_count <= PARTITION_COUNT_MAX && topic.created_by <= last_mutation_ &&
        topic.created_epoch <= last_leader_epoch_ && !topic_by_name_.contains(topic.name);
    if (!sound)
        return damaged("the state holds an impossible topic " +
                       std::to_string(topic.topic_id.value));
    insert_pair(std::move(topic));
    return {};
}

Result<void> Catalog::decode_group(ByteReader& reader) {
    ConsumerGroup group;
    group.group_id = reader.id<GroupId>();
    group.name = take_name(reader);
    group.topic_id = reader.id<TopicId>();
    group.membership_epoch = reader.id<MembershipEpoch>();
    group.assignment_epoch = reader.id<AssignmentEpoch>();
    group.created_by = reader.id<MutationId>();
    const std::size_t partition_count = reader.u16();
    if (reader.failed() || partition_count * PARTITION_STATE_BYTES > reader.remaining()) {
        return damaged("the state ends within a group");
    }
    group.start_after.resize(partition_count);
    group.ownership.resize(partition_count);
    for (std::size_t i = 0; i < partition_count; ++i) {
        group.start_after[i] = reader.id<Sequence>();
        group.ownership[i].owner = reader.id<MemberId>();
        group.ownership[i].ownership_epoch = reader.id<OwnershipEpoch>();
    }
    const std::size_t member_count = reader.u8();
    bool sound = true;
    for (std::size_t i = 0; i < member_count; ++i) {
        Member member;
        member.member_id = reader.id<MemberId>();
        member.joined_at = reader.id<MembershipEpoch>();
        sound = sound &&
                (group.members.empty() || group.members.rbegin()->first < member.member_id) &&
                member.member_id.value > 0 && member.member_id.value <= last_mutation_.value &&
                member.joined_at <= group.membership_epoch;
        group.members.emplace(member.member_id, member);
    }
    if (reader.failed()) return damaged("the state ends within a group");
    for (const Ownership& ownership : group.ownership) {
        sound = sound && (ownership.owner == MemberId{} || group.members.contains(ownership.owner));
    }
    const Topic* topic = find_topic(group.topic_id);
    sound = sound && topic != nullptr && topic->partition_count == partition_count &&
            member_count <= GROUP_MEMBER_COUNT_MAX && check_group_name(group.name).ok() &&
            group.group_id.value > 0 && group.group_id.value < next_group_ &&
            (groups_.empty() || groups_.rbegin()->first < group.group_id) &&
            group.created_by <= last_mutation_ && !group_by_name_.contains(group.name);
    if (!sound)
        return damaged("the state holds an impossible group " +
                       std::to_string(group.group_id.value));
    insert_group(std::move(group));
    return {};
}

}  // namespace mortar
