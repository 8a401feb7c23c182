// json: strict reading and plain writing of JSON text.
// Shape:    parse_json gives a tree in the order of the text; whole numbers keep their value, others only their text.
//           JsonWriter appends to a string; commas and line breaks are its business.
// Owns:     the tree owns its strings.
// Errors:   INVALID_ARGUMENT with line and column: bad syntax, trailing text, a key twice in one object, more than
//           JSON_DEPTH_MAX levels, not UTF-8.
// Source:   contract 4; ecosystem notes on JSON (duplicates pass silently, numbers convert silently).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace mortar {

inline constexpr std::size_t JSON_DEPTH_MAX = 32;

struct JsonValue {
    enum class Kind : std::uint8_t {
        NOTHING,
        BOOLEAN,
        UNSIGNED,
        OTHER_NUMBER,
        STRING,
        ARRAY,
        OBJECT
    };
    Kind kind = Kind::NOTHING;
    bool flag = false;         // BOOLEAN
    std::uint64_t number = 0;  // UNSIGNED
    std::string text;  // STRING; of an OTHER_NUMBER (negative or with a fraction) as written
    std::vector<JsonValue> items;   // ARRAY; OBJECT: the values
    std::vector<std::string> keys;  // OBJECT: as many as items

    bool is(Kind other) const { return kind == other; }
    // Of an object; nullptr when there is none.
    const JsonValue* find(std::string_view key) const;
};

Result<JsonValue> parse_json(std::string_view text);
// "a string", "a whole number", ... for messages.
std::string_view json_kind_name(JsonValue::Kind kind);

class JsonWriter {
  public:
    // indent 0: everything on one line.
    explicit JsonWriter(std::string& into, std::size_t indent = 0) : into_(into), indent_(indent) {}

    JsonWriter& begin_object() { return open('{'); }
    JsonWriter& end_object() { return close('}'); }
    JsonWriter& begin_array() { return open('['); }
    JsonWriter& end_array() { return close(']'); }
    JsonWriter& key(std::string_view name);
    JsonWriter& string(std::string_view text);  // bytes that are not UTF-8 become U+FFFD
    JsonWriter& number(std::uint64_t value);
    JsonWriter& boolean(bool value);
    JsonWriter& value(const JsonValue& value);

  private:
    JsonWriter& open(char bracket);
    JsonWriter& close(char bracket);
    void begin_value();
    void break_line();

    std::string& into_;
    std::size_t indent_;
    std::size_t depth_ = 0;
    bool is_first_ = true;  // in the present object or array
    bool follows_key_ = false;
};

}  // namespace mortar
