// Dumps of MMML and MMMS: every record a line, damage named.
#include "core/meta/metadata_dump.h"

#include <gtest/gtest.h>

#include "core/meta/metadata_format.h"

namespace mortar {
namespace {

Mutation mutation(std::uint64_t id, MutationBody body) {
    return {MutationId(id), LeaderEpoch(2), 1000, std::move(body)};
}

struct Dump {
    std::vector<std::string> lines;
    bool is_sound = false;
};
template <class Function>
Dump dump(Function function, ByteSpan file) {
    Dump result;
    result.is_sound =
        function(file, "f", [&](const std::string& line) { result.lines.push_back(line); });
    return result;
}

TEST(MetadataDump, shows_each_record_and_damage_between_them) {
    ByteVector file = encode_metadata_log_head();
    file.resize(METADATA_ALIGN_BYTES);
    const MutationBody bodies[] = {
        TopicCreated{"a\n", 2},
        GroupCreated{"g", TopicId(1), {Sequence(0), Sequence(5)}},
        MemberJoined{GroupId(1), {MemberId(0), MemberId(0)}},
        MembersLeft{GroupId(1), {MemberId(3)}, {MemberId(0), MemberId(0)}},
        GroupDeleted{GroupId(1)},
        TopicDeleted{TopicId(1)}};
    std::uint64_t id = 0;
    for (const MutationBody& body : bodies) {
        const ByteVector record = encode_metadata_record(mutation(++id, body));
        file.insert(file.end(), record.begin(), record.end());
    }
    const std::string common = " leader_epoch=2 timestamp_unix_ms=1000 ";
    std::vector<std::string> expected = {
        "file_offset=512 mutation_id=1" + common +
            "topic_created name=\"a\\u000a\" partition_count=2",
        "file_offset=1024 mutation_id=2" + common +
            "group_created name=\"g\" topic_id=1 start_after=[0,5]",
        "file_offset=1536 mutation_id=3" + common + "member_joined group_id=1 owners=[0,0]",
        "file_offset=2048 mutation_id=4" + common + "members_left group_id=1 left=[3] owners=[0,0]",
        "file_offset=2560 mutation_id=5" + common + "group_deleted group_id=1",
        "file_offset=3072 mutation_id=6" + common + "topic_deleted topic_id=1"};
    const Dump sound = dump(dump_metadata_log, file);
    EXPECT_TRUE(sound.is_sound);
    EXPECT_EQ(sound.lines, expected);

    file[1024 + 20] ^= std::byte{1};
    expected[1] = "file_offset=1024 CHECKSUM_MISMATCH: wrong checksum";
    const Dump damaged = dump(dump_metadata_log, file);
    EXPECT_FALSE(damaged.is_sound);
    EXPECT_EQ(damaged.lines, expected);

    file[4] = std::byte{9};
    const Dump newer = dump(dump_metadata_log, file);
    EXPECT_FALSE(newer.is_sound);
    EXPECT_EQ(newer.lines.size(), 1u);
}

TEST(MetadataDump, shows_a_snapshot) {
    Catalog catalog;
    catalog.apply(mutation(1, TopicCreated{"a", 1}));
    catalog.apply(mutation(2, GroupCreated{"g", TopicId(1), {Sequence(5)}}));
    catalog.apply(mutation(3, MemberJoined{GroupId(1), {MemberId(0)}}));
    ByteVector file = encode_metadata_snapshot(catalog);
    const Dump sound = dump(dump_metadata_snapshot, file);
    EXPECT_TRUE(sound.is_sound);
    EXPECT_EQ(sound.lines,
              (std::vector<std::string>{
                  "offset=3 leader_epoch=2",
                  "topic_id=1 name=\"a\" partition_count=1 created_by=1 created_epoch=2",
                  "topic_id=2 name=\"a.dlq\" partition_count=1 created_by=1 created_epoch=2",
                  "group_id=1 name=\"g\" topic_id=1 membership_epoch=1 assignment_epoch=1 "
                  "members=[3] start_after=[5]",
                  "  partition=0 owner=3 ownership_epoch=1"}));
    file.back() ^= std::byte{1};
    const Dump damaged = dump(dump_metadata_snapshot, file);
    EXPECT_FALSE(damaged.is_sound);
    EXPECT_EQ(damaged.lines, std::vector<std::string>{"CHECKSUM_MISMATCH: f has a wrong checksum"});
}

}  // namespace
}  // namespace mortar
