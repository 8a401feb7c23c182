// report: results as a table for people or as JSON, and bars that hold or do not.
// Units:  JSON keys end in their unit; whole numbers only. Ratios in JSON are in percent.
// Source: issue 2 (Speed).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/disk_probe.h"
#include "tools/bench/histogram.h"

namespace mortar::bench {

struct Measured {
    std::string name;
    Histogram latency;
    Round total;

    void add(const Round& round) {
        total.count += round.count;
        total.elapsed = total.elapsed + round.elapsed;
    }
};

struct Figure {
    std::string name;  // JSON key, with its unit
    std::uint64_t value = 0;
    std::string text;  // for people; empty: JSON only
};

struct Bar {
    std::string name;
    bool holds = false;
    std::string text;  // measured and allowed, for people
};

struct Report {
    std::vector<std::pair<std::string, std::string>> facts;  // what was measured: JSON key and text
    std::vector<Measured> measured;
    std::vector<Figure> figures;
    std::map<std::uint16_t, std::uint64_t> errors;  // answers that were errors, by code
    std::vector<Bar> bars;

    bool holds() const;
    std::string json() const;
    std::string table() const;
};

std::string microseconds_text(std::int64_t ns);  // "123.4 us"
std::string ratio_text(std::uint64_t percent);   // "1.23"
std::string error_text(std::uint16_t code);      // "SEQ_GAP", or its number
std::uint64_t percent_of(std::uint64_t part, std::uint64_t whole);

// Before the run. Where others want the processors a lone writer is woken late after each sync, which makes the probe slow and
// the ratios good: such a result is worth nothing, and says so.
std::string load_average();

// One line that is written over and over, on a terminal only.
class Progress {
  public:
    Progress();
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void show(const std::string& text);
    // False: what show is given is not seen.
    bool is_shown() const { return on_terminal_; }

  private:
    bool on_terminal_;
};

}  // namespace mortar::bench
