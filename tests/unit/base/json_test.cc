// JSON: what is refused, what is kept, and text that reads back.
#include "core/base/json.h"

#include <gtest/gtest.h>

namespace mortar {
namespace {

std::string round_trip(std::string_view text, std::size_t indent = 0) {
    const Result<JsonValue> value = parse_json(text);
    EXPECT_TRUE(value.ok()) << text;
    if (!value.ok()) return {};
    std::string out;
    JsonWriter(out, indent).value(*value);
    return out;
}

TEST(Json, reads_and_writes_the_same_text) {
    for (const char* text :
         {"null", "true", "18446744073709551615", "-3", "1.50", "\"a\\\"\\\\\\u0000\"", "[]", "{}",
          "{\"b\":[1,{\"a\":null}],\"a\":\"\"}", "\"gr\xC3\xBC\xC3\x9F\""}) {
        EXPECT_EQ(round_trip(text), text);
    }
    EXPECT_EQ(round_trip("{\"a\":[1,2],\"b\":{}}", 2),
              "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}

TEST(Json, refuses_what_others_let_pass) {
    for (const char* text :
         {"", "{", "[1,]", "{\"a\":1,}", "1 2", "// x\n1", "{\"a\":1,\"a\":2}",
          "{\"a\":1,\"b\":{\"c\":1,\"c\":2}}", "\"\xFF\"", "nul", "01", "+1", "{a:1}", "'a'"}) {
        EXPECT_TRUE(parse_json(text).is(ErrorCode::INVALID_ARGUMENT)) << text;
    }
    EXPECT_TRUE(parse_json(std::string(32, '[') + std::string(32, ']')).ok());
    EXPECT_FALSE(parse_json(std::string(33, '[') + std::string(33, ']')).ok());
    EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).ok());
}

TEST(Json, names_the_place_of_an_error) {
    EXPECT_EQ(parse_json("{\n  \"a\": x\n}").error().detail, "not JSON at line 2, column 8");
    EXPECT_EQ(parse_json("{\"a\":1,\"a\":2}").error().detail, "key twice: a");
}

TEST(Json, keeps_numbers_apart) {
    EXPECT_EQ(parse_json("7")->number, 7u);
    EXPECT_TRUE(parse_json("7.0")->is(JsonValue::Kind::OTHER_NUMBER));
    EXPECT_TRUE(parse_json("-7")->is(JsonValue::Kind::OTHER_NUMBER));
    EXPECT_TRUE(parse_json("18446744073709551616")->is(JsonValue::Kind::OTHER_NUMBER));
    EXPECT_EQ(parse_json("{\"x\":1}")->find("y"), nullptr);
}

TEST(Json, writes_bad_bytes_as_replacement) {
    std::string out;
    JsonWriter(out).string("a\xFF\n\x7F");
    EXPECT_EQ(out, "\"a\xEF\xBF\xBD\\u000a\\u007f\"");
}

}  // namespace
}  // namespace mortar
