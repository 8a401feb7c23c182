#include "core/meta/metadata_dump.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/meta/metadata_format.h"

namespace mortar {
namespace {
// Names as in JSON: any byte of them stays on its line.
std::string quoted(const std::string& name) {
    std::string text;
    JsonWriter(text).string(name);
    return text;
}

template <class Id>
std::string list_of(const std::vector<Id>& ids) {
    std::string text = "[";
    for (const Id id : ids) {
        if (text.size() > 1) text.push_back(',');
        text.append(std::to_string(id.value));
    }
    return text + "]";
}

struct Describe {
    std::string operator()(const TopicCreated& body) const {
        return "name=" + quoted(body.name) +
               " partition_count=" + std::to_string(body.partition_count);
    }
    std::string operator()(const TopicDeleted& body) const {
        return "topic_id=" + std::to_string(body.topic_id.value);
    }
    std::string operator()(const GroupCreated& body) const {
        return "name=" + quoted(body.name) + " topic_id=" + std::to_string(body.topic_id.value) +
               " start_after=" + list_of(body.start_after);
    }
    std::string operator()(const GroupDeleted& body) const {
        return "group_id=" + std::to_string(body.group_id.value);
    }
    std::string operator()(const MemberJoined& body) const {
        return "group_id=" + std::to_string(body.group_id.value) +
               " owners=" + list_of(body.owners);
    }
    std::string operator()(const MembersLeft& body) const {
        return "group_id=" + std::to_string(body.group_id.value) + " left=" + list_of(body.left) +
               " owners=" + list_of(body.owners);
    }
};

bool is_zero(ByteSpan bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}
}  // namespace

std::string describe_mutation(const Mutation& mutation) {
    return "mutation_id=" + std::to_string(mutation.mutation_id.value) +
           " leader_epoch=" + std::to_string(mutation.leader_epoch.value) +
           " timestamp_unix_ms=" + std::to_string(mutation.timestamp_unix_ms) + " " +
           std::string(mutation_name(mutation.body)) + " " + std::visit(Describe{}, mutation.body);
}

bool dump_metadata_log(ByteSpan file, const std::string& path, const DumpLine& line) {
    const Result<void> head = check_metadata_log_head(file, path);
    if (!head.ok()) {
        line(head.error().to_string());
        return false;
    }
    bool is_sound = true;
    for (std::size_t at = METADATA_ALIGN_BYTES; at < file.size();) {
        const ByteSpan rest = file.subspan(at);
        const std::string place = "file_offset=" + std::to_string(at) + " ";
        const Result<RawMetadataRecord> record = parse_metadata_record(rest);
        if (!record.ok()) {
            // Of a long damaged stretch one line is enough; sound records behind it are shown.
            if (is_zero(rest)) break;
            if (is_sound) line(place + record.error().to_string());
            is_sound = false;
            at += METADATA_ALIGN_BYTES;
            continue;
        }
        const Result<Mutation> mutation = decode_metadata_record(*record);
        line(place + (mutation.ok() ? describe_mutation(*mutation) : mutation.error().to_string()));
        is_sound = is_sound && mutation.ok();
        at += static_cast<std::size_t>(metadata_aligned(record->record_bytes()));
    }
    return is_sound;
}

bool dump_metadata_snapshot(ByteSpan file, const std::string& path, const DumpLine& line) {
    const Result<Catalog> catalog = parse_metadata_snapshot(file, path);
    if (!catalog.ok()) {
        line(catalog.error().to_string());
        return false;
    }
    line("offset=" + std::to_string(catalog->last_mutation().value) +
         " leader_epoch=" + std::to_string(catalog->last_leader_epoch().value));
    for (const auto& [topic_id, topic] : catalog->topics()) {
        line("topic_id=" + std::to_string(topic_id.value) + " name=" + quoted(topic.name) +
             " partition_count=" + std::to_string(topic.partition_count) +
             " created_by=" + std::to_string(topic.created_by.value) +
             " created_epoch=" + std::to_string(topic.created_epoch.value));
    }
    for (const auto& [group_id, group] : catalog->groups()) {
        std::vector<MemberId> members;
        for (const auto& [member_id, member] : group.members)
            members.push_back(member_id);
        line("group_id=" + std::to_string(group_id.value) + " name=" + quoted(group.name) +
             " topic_id=" + std::to_string(group.topic_id.value) +
             " membership_epoch=" + std::to_string(group.membership_epoch.value) +
             " assignment_epoch=" + std::to_string(group.assignment_epoch.value) +
             " members=" + list_of(members) + " start_after=" + list_of(group.start_after));
        for (std::size_t i = 0; i < group.ownership.size(); ++i) {
            line("  partition=" + std::to_string(i) +
                 " owner=" + std::to_string(group.ownership[i].owner.value) +
                 " ownership_epoch=" + std::to_string(group.ownership[i].ownership_epoch.value));
        }
    }
    return true;
}

}  // namespace mortar
