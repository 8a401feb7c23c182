#include "core/base/json.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/base/utf8.h"

namespace mortar {
namespace {
using Kind = JsonValue::Kind;

std::string place_of(std::string_view text, std::size_t offset) {
    const std::string_view before = text.substr(0, std::min(offset, text.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    return "line " + std::to_string(line) + ", column " +
           std::to_string(before.size() - line_start + 1);
}

// Builds the tree from the parser's events. False ends the parse; problem_ says why when it was not the syntax.
class Builder : public nlohmann::json_sax<nlohmann::json> {
  public:
    bool null() override { return add({}); }
    bool boolean(bool value) override {
        JsonValue made;
        made.kind = Kind::BOOLEAN;
        made.flag = value;
        return add(std::move(made));
    }
    bool number_integer(number_integer_t value) override {
        return add_number(std::to_string(value));
    }
    bool number_unsigned(number_unsigned_t value) override {
        JsonValue made;
        made.kind = Kind::UNSIGNED;
        made.number = value;
        return add(std::move(made));
    }
    bool number_float(number_float_t, const string_t& text) override { return add_number(text); }
    bool string(string_t& value) override {
        JsonValue made;
        made.kind = Kind::STRING;
        made.text = std::move(value);
        return add(std::move(made));
    }
    bool binary(binary_t&) override { return false; }  // not in text
    bool start_object(std::size_t) override { return open(Kind::OBJECT); }
    bool start_array(std::size_t) override { return open(Kind::ARRAY); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        JsonValue& object = *open_.back();
        if (object.find(name) != nullptr) {
            problem_ = "key twice: " + name;
            return false;
        }
        object.keys.push_back(std::move(name));
        return true;
    }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::detail::exception&) override {
        position_ = position;
        return false;
    }

    JsonValue& root() { return root_; }
    std::size_t position() const { return position_; }
    const std::string& problem() const { return problem_; }

  private:
    bool add_number(std::string text) {
        JsonValue made;
        made.kind = Kind::OTHER_NUMBER;
        made.text = std::move(text);
        return add(std::move(made));
    }
    bool add(JsonValue made) {
        place(std::move(made));
        return true;
    }
    // Values only grow at the end of the innermost open one, so that pointers to the open ones stay good.
    JsonValue& place(JsonValue made) {
        if (open_.empty()) {
            root_ = std::move(made);
            return root_;
        }
        return open_.back()->items.emplace_back(std::move(made));
    }
    bool open(Kind kind) {
        if (open_.size() == JSON_DEPTH_MAX) {
            problem_ = "more than " + std::to_string(JSON_DEPTH_MAX) + " levels";
            return false;
        }
        JsonValue made;
        made.kind = kind;
        open_.push_back(&place(std::move(made)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    JsonValue root_;
    std::vector<JsonValue*> open_;
    std::size_t position_ = 0;
    std::string problem_;
};
}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
    // The last key has no value yet while an object is being read.
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] == key && i < items.size()) return &items[i];
    }
    return nullptr;
}

Result<JsonValue> parse_json(std::string_view text) {
    Builder builder;
    if (nlohmann::json::sax_parse(text, &builder)) return std::move(builder.root());
    if (!builder.problem().empty())
        return make_error(ErrorCode::INVALID_ARGUMENT, builder.problem());
    // The parser counts from 1 and names the first character that it could not use.
    const std::size_t offset = builder.position() == 0 ? 0 : builder.position() - 1;
    return make_error(ErrorCode::INVALID_ARGUMENT, "not JSON at " + place_of(text, offset));
}

std::string_view json_kind_name(Kind kind) {
    switch (kind) {
        case Kind::NOTHING:
            return "null";
        case Kind::BOOLEAN:
            return "true or false";
        case Kind::UNSIGNED:
            return "a whole number";
        case Kind::OTHER_NUMBER:
            return "a number that is negative or not whole";
        case Kind::STRING:
            return "a string";
        case Kind::ARRAY:
            return "an array";
        case Kind::OBJECT:
            return "an object";
    }
    MORTAR_UNREACHABLE();
}

JsonWriter& JsonWriter::key(std::string_view name) {
    MORTAR_ASSERT(!follows_key_);
    string(name);
    into_.append(indent_ == 0 ? ":" : ": ");
    follows_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
    static constexpr char DIGITS[] = "0123456789abcdef";
    begin_value();
    into_.push_back('"');
    while (!text.empty()) {
        std::uint32_t code_point = 0;
        const std::string_view before = text;
        if (!take_code_point(text, code_point)) {
            into_.append("\xEF\xBF\xBD");
            text.remove_prefix(1);
        } else if (code_point == '"' || code_point == '\\') {
            into_.push_back('\\');
            into_.push_back(static_cast<char>(code_point));
        } else if (code_point < 0x20 || code_point == 0x7F) {
            into_.append("\\u00");
            into_.push_back(DIGITS[code_point >> 4]);
            into_.push_back(DIGITS[code_point & 15u]);
        } else {
            into_.append(before.substr(0, before.size() - text.size()));
        }
    }
    into_.push_back('"');
    return *this;
}

JsonWriter& JsonWriter::number(std::uint64_t value) {
    begin_value();
    into_.append(std::to_string(value));
    return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
    begin_value();
    into_.append(value ? "true" : "false");
    return *this;
}

JsonWriter& JsonWriter::value(const JsonValue& value) {
    switch (value.kind) {
        case Kind::NOTHING:
            begin_value();
            into_.append("null");
            return *this;
        case Kind::BOOLEAN:
            return boolean(value.flag);
        case Kind::UNSIGNED:
            return number(value.number);
        case Kind::OTHER_NUMBER:
            begin_value();
            into_.append(value.text);
            return *this;
        case Kind::STRING:
            return string(value.text);
        case Kind::ARRAY:
            begin_array();
            break;
        case Kind::OBJECT:
            begin_object();
            break;
    }
    for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (value.is(Kind::OBJECT)) key(value.keys[i]);
        this->value(value.items[i]);
    }
    return value.is(Kind::OBJECT) ? end_object() : end_array();
}

JsonWriter& JsonWriter::open(char bracket) {
    begin_value();
    into_.push_back(bracket);
    ++depth_;
    is_first_ = true;
    return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
    MORTAR_ASSERT(depth_ > 0);
    --depth_;
    if (!is_first_) break_line();
    into_.push_back(bracket);
    is_first_ = false;
    return *this;
}

void JsonWriter::begin_value() {
    if (std::exchange(follows_key_, false)) return;
    if (depth_ == 0) return;
    if (!is_first_) into_.push_back(',');
    is_first_ = false;
    break_line();
}

void JsonWriter::break_line() {
    if (indent_ == 0) return;
    into_.push_back('\n');
    into_.append(depth_ * indent_, ' ');
}

}  // namespace mortar
