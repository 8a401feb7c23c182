// The map that a stranger reads first must not lie.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
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
    for (int stage = 1; stage <= 7; ++stage) {
        EXPECT_NE(readme.find("\n| " + std::to_string(stage) + " "), std::string::npos)
            << "stage " << stage;
    }
}

// As the sites that show it make them: lower case, blanks to dashes, punctuation gone.
std::string anchor_of(const std::string& heading) {
    std::string anchor;
    for (const char c : heading) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) != 0 || c == '-') anchor += static_cast<char>(std::tolower(byte));
        if (c == ' ') anchor += '-';
    }
    return anchor;
}

TEST(Readme, leads_to_headings_and_files_that_exist) {
    const std::string readme = text_of("README.md");
    std::set<std::string> anchors;
    const std::regex heading(R"((?:^|\n)#+ ([^\n]+))");
    for (std::sregex_iterator match(readme.begin(), readme.end(), heading), end; match != end;
         ++match) {
        anchors.insert(anchor_of((*match)[1]));
    }
    int count = 0;
    const std::regex link(R"(\]\(([^)]+)\))");
    for (std::sregex_iterator match(readme.begin(), readme.end(), link), end; match != end;
         ++match, ++count) {
        const std::string target = (*match)[1];
        if (target.starts_with('#')) {
            EXPECT_TRUE(anchors.contains(target.substr(1))) << target;
        } else {
            EXPECT_TRUE(std::filesystem::exists(MORTAR_SOURCE_DIR "/" + target)) << target;
        }
    }
    EXPECT_GE(count, 4);
}

// process.readme runs its commands; here: each script and program that any text of it names.
TEST(Readme, names_scripts_that_exist) {
    const std::string readme = text_of("README.md");
    const std::regex script(R"(tools/[a-z]+)");
    int count = 0;
    for (std::sregex_iterator match(readme.begin(), readme.end(), script), end; match != end;
         ++match, ++count) {
        EXPECT_TRUE(std::filesystem::exists(MORTAR_SOURCE_DIR "/" + match->str())) << match->str();
    }
    EXPECT_GE(count, 5);
}

}  // namespace
}  // namespace mortar
