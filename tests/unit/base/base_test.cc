// errors, result, bytes, hash and rng.
#include <gtest/gtest.h>

#include <set>

#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/env/rng.h"

namespace mortar {
namespace {

TEST(Errors, registry_has_51_codes_with_unique_names_in_order) {
    int registered = 0;
    std::set<std::string_view> names;
    int last = 0;
    for (const ErrorInfo& info : all_errors()) {
        const int number = static_cast<int>(info.code);
        EXPECT_GT(number, last);
        last = number;
        EXPECT_TRUE(names.insert(info.name).second);
        if (!is_local(info.code)) ++registered;
        EXPECT_EQ(find_error(static_cast<std::uint16_t>(number)), &info);
    }
    EXPECT_EQ(registered, 51);
    EXPECT_EQ(find_error(0x000c), nullptr);
}

Result<int> half(int n) {
    if (n % 2 != 0) return make_error(ErrorCode::INVALID_ARGUMENT, "odd");
    return n / 2;
}
Result<int> quarter(int n) {
    const int h = MORTAR_TRY(half(n));
    return half(h);
}

TEST(Result, try_passes_values_and_errors_on) {
    EXPECT_EQ(quarter(8).value(), 2);
    EXPECT_TRUE(quarter(6).is(ErrorCode::INVALID_ARGUMENT));
    EXPECT_EQ(quarter(3).error().to_string(), "INVALID_ARGUMENT: odd");
}

TEST(ResultDeathTest, reading_a_value_that_is_not_there_stops_the_process) {
    const Result<int> failed = half(3);
    EXPECT_DEATH((void)failed.value(), "MORTAR_ASSERT failed: ok\\(\\)");
}

TEST(Bytes, writer_and_reader_agree_and_short_reads_fail) {
    ByteVector bytes;
    ByteWriter writer(bytes);
    writer.u8(1);
    writer.u16(0x0203);
    writer.u32(0x04050607);
    writer.u64(0x08090a0b0c0d0e0f);
    EXPECT_EQ(to_hex(bytes), "0102030405060708090a0b0c0d0e0f");
    ByteReader reader(bytes);
    EXPECT_EQ(reader.u8(), 1);
    EXPECT_EQ(reader.u16(), 0x0203);
    EXPECT_EQ(reader.u32(), 0x04050607u);
    EXPECT_EQ(reader.u64(), 0x08090a0b0c0d0e0fu);
    EXPECT_TRUE(reader.finished());
    EXPECT_EQ(reader.u8(), 0);
    EXPECT_TRUE(reader.failed());
}

TEST(Hash, keyed_hash_is_hmac_sha256) {
    // RFC 4231, test case 2; the short key filled up with zeros is the same key.
    SecretKey key{};
    std::memcpy(key.data(), "Jefe", 4);
    EXPECT_EQ(to_hex(keyed_hash(key, as_byte_span("what do ya want for nothing?"))),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Hash, known_answers) {
    EXPECT_EQ(crc32c(as_byte_span("123456789")), 0xE3069283u);
    EXPECT_EQ(crc32c(as_byte_span("56789"), crc32c(as_byte_span("1234"))), 0xE3069283u);
    EXPECT_EQ(fnv1a32(as_byte_span("")), 0x811c9dc5u);
    EXPECT_EQ(fnv1a32(as_byte_span("foobar")), 0xbf9cf968u);
    EXPECT_EQ(to_hex(sha256(as_byte_span("abc"))),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    Sha256Digest digest;
    EXPECT_TRUE(from_hex(to_hex(sha256(as_byte_span("abc"))), digest));
    EXPECT_TRUE(equal_constant_time(digest, sha256(as_byte_span("abc"))));
    EXPECT_FALSE(from_hex("0g", MutableByteSpan(digest).first(1)));
}

TEST(Rng, is_the_same_for_ever_and_bounded) {
    Rng rng(42);
    EXPECT_EQ(rng.next(), 1546998764402558742u);
    for (int i = 0; i < 1000; ++i) {
        EXPECT_LT(rng.below(7), 7u);
        const std::int64_t drawn = rng.between(-3, 3);
        EXPECT_TRUE(drawn >= -3 && drawn <= 3);
    }
}

}  // namespace
}  // namespace mortar
