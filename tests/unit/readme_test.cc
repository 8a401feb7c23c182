// The map that a stranger reads first must not lie.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace mortar {
namespace {

std::string text_of(const std::string& path) {
    std::ifstream file(std::string(MORTAR_SOURCE_DIR "/") + path);
    EXPECT_TRUE(file.good()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CoreReadme, names_files_and_functions_that_exist) {
    const std::string readme = text_of("core/README.md");
    const std::regex row(R"(\| `([a-z_/]+\.cc)` \| `([A-Za-z_:]+)` \|)");
    int count = 0;
    for (std::sregex_iterator match(readme.begin(), readme.end(), row), end; match != end;
         ++match, ++count) {
        const std::string source = text_of("core/" + (*match)[1].str());
        EXPECT_NE(source.find((*match)[2].str() + "("), std::string::npos) << (*match)[0];
    }
    EXPECT_GE(count, 14);
    for (int stage = 1; stage <= 6; ++stage) {
        EXPECT_NE(readme.find("\n| " + std::to_string(stage) + " "), std::string::npos)
            << "stage " << stage;
    }
}

}  // namespace
}  // namespace mortar
