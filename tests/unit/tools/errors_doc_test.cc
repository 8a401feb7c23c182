#include "tools/errors_doc.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace mortar {
namespace {

TEST(ErrorsDoc, the_page_in_docs_is_what_the_table_says) {
    std::ifstream file(MORTAR_SOURCE_DIR "/docs/errors.md");
    ASSERT_TRUE(file.good());
    const std::string page((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    EXPECT_EQ(page, render_errors_doc()) << "run errors_doc > docs/errors.md";
}

TEST(ErrorsDoc, lists_every_registered_code_once_and_no_local_one) {
    const std::string page = render_errors_doc();
    int registered = 0;
    for (const ErrorInfo& info : all_errors()) {
        const std::string cell = "| " + std::string(info.name) + " |";
        const std::size_t at = page.find(cell);
        EXPECT_EQ(at != std::string::npos, !is_local(info.code)) << info.name;
        if (is_local(info.code)) continue;
        ++registered;
        EXPECT_EQ(page.find(cell, at + 1), std::string::npos) << info.name;
    }
    EXPECT_EQ(registered, 51);
}

}  // namespace
}  // namespace mortar
