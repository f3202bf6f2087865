// Prometheus's text exposition format 0.0.4, read line by line: every line is valid, no family is interrupted by another, each
// comes after its HELP and TYPE, no sample comes twice, histograms are cumulative and end with +Inf.
#pragma once

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace cgr_test {

class MetricsReader {
public:
  using Labels = std::map<std::string, std::string>;

  // Throws std::runtime_error if the format does not allow the text.
  explicit MetricsReader(const std::string &text) {
    if (text.empty() || text.back() != '\n')
      throw std::runtime_error("the last line does not end");
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
      Line(line);
    for (const auto &[name, type] : types_)
      if (type == "histogram")
        CheckHistogram(name);
  }
  double Get(const std::string &name, const Labels &labels = {}) const {
    const auto found = samples_.find({ name, labels });
    return found != samples_.end() ? found->second : throw std::runtime_error("no sample of " + name);
  }
  bool Has(const std::string &name, const Labels &labels = {}) const { return samples_.count({ name, labels }) != 0; }
  // Over all samples of a name.
  double Sum(const std::string &name) const {
    double sum = 0;
    for (const auto &[sample, value] : samples_)
      sum += sample.first == name ? value : 0;
    return sum;
  }
  std::string TypeOf(const std::string &name) const { return types_.count(name) ? types_.at(name) : ""; }
  const std::map<std::pair<std::string, Labels>, double> &samples() const { return samples_; }
  // The buckets of a histogram with these labels, by border.
  std::map<double, double> Buckets(const std::string &name, const Labels &labels) const {
    std::map<double, double> buckets;
    for (const auto &[sample, value] : samples_) {
      if (sample.first != name + "_bucket")
        continue;
      Labels others = sample.second;
      const std::string le = others.at("le");
      others.erase("le");
      if (others == labels)
        buckets[le == "+Inf" ? INFINITY : std::strtod(le.c_str(), nullptr)] = value;
    }
    return buckets;
  }

private:
  static bool IsName(const std::string &name, const std::string &others) {
    const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_" + others;
    return !name.empty() && letters.find(name[0]) != std::string::npos &&
           name.find_first_not_of(letters + "0123456789") == std::string::npos;
  }
  [[noreturn]] static void Fail(const std::string &what, const std::string &line) {
    throw std::runtime_error(what + ": " + line);
  }

  void Line(const std::string &line) {
    std::istringstream words(line);
    std::string hash, what, name, type;
    if (line.rfind("# ", 0) != 0) {
      Sample(line);
      return;
    }
    words >> hash >> what >> name;
    if (!IsName(name, ":"))
      Fail("no name", line);
    if (what == "HELP") {
      if (!helped_.insert(name).second)
        Fail("helped twice", line);
      family_ = "";
    } else if (what == "TYPE" && words >> type && (type == "counter" || type == "gauge" || type == "histogram")) {
      if (!types_.emplace(name, type).second || !helped_.count(name))
        Fail("typed twice, or not helped before", line);
      if (type == "counter" && (name.size() < 6 || name.compare(name.size() - 6, 6, "_total") != 0))
        Fail("a counter without _total", line);
      family_ = name;
    } else {
      Fail("neither HELP nor TYPE", line);
    }
  }
  void Sample(const std::string &line) {
    size_t at = line.find_first_of("{ ");
    if (at == std::string::npos || !IsName(line.substr(0, at), ":"))
      Fail("no name", line);
    const std::string name = line.substr(0, at);
    Labels labels;
    if (line[at] == '{')
      at = ReadLabels(line, at + 1, &labels);
    if (line[at] != ' ')
      Fail("no space before the value", line);
    char *end = nullptr;
    const double value = std::strtod(line.c_str() + at + 1, &end);
    if (end == line.c_str() + at + 1 || *end != '\0')
      Fail("no value", line);
    CheckFamily(name, line);
    if (!samples_.emplace(std::make_pair(name, labels), value).second)
      Fail("twice", line);
  }
  // Returns what follows the closing brace.
  static size_t ReadLabels(const std::string &line, size_t at, Labels *labels) {
    while (line[at] != '}') {
      const size_t equals = line.find("=\"", at);
      if (equals == std::string::npos || !IsName(line.substr(at, equals - at), ""))
        Fail("no label", line);
      std::string value;
      size_t c = equals + 2;
      for (; c < line.size() && line[c] != '"'; c++) {
        if (line[c] != '\\') {
          value += line[c];
          continue;
        }
        const char escaped = line[++c];
        if (escaped != '\\' && escaped != '"' && escaped != 'n')
          Fail("bad escape", line);
        value += escaped == 'n' ? '\n' : escaped;
      }
      if (c >= line.size() || !labels->emplace(line.substr(at, equals - at), value).second)
        Fail("a value without an end, or a label twice", line);
      at = c + 1;
      if (line[at] == ',')
        at++;
      else if (line[at] != '}')
        Fail("no comma", line);
    }
    return at + 1;
  }
  void CheckFamily(const std::string &name, const std::string &line) const {
    const bool histogram = types_.count(family_) && types_.at(family_) == "histogram";
    bool fits = !histogram && name == family_;
    for (const char *suffix : { "_bucket", "_sum", "_count" })
      fits = fits || (histogram && name == family_ + suffix);
    if (!fits)
      Fail("not of family " + family_, line);
  }
  // Buckets of the same labels but le, by border.
  void CheckHistogram(const std::string &name) const {
    std::map<Labels, std::map<double, double>> series;
    for (const auto &[sample, value] : samples_) {
      if (sample.first != name + "_bucket")
        continue;
      Labels labels = sample.second;
      const std::string le = labels.at("le");
      labels.erase("le");
      series[labels][le == "+Inf" ? INFINITY : std::strtod(le.c_str(), nullptr)] = value;
    }
    if (series.empty())
      throw std::runtime_error("an empty histogram: " + name);
    for (const auto &[labels, buckets] : series) {
      double before = 0;
      for (const auto &[border, count] : buckets) {
        if (count < before)
          throw std::runtime_error("not cumulative: " + name);
        before = count;
      }
      if (!buckets.count(INFINITY) || buckets.at(INFINITY) != Get(name + "_count", labels))
        throw std::runtime_error("+Inf is not the count: " + name);
      (void)Get(name + "_sum", labels);
    }
  }

  std::set<std::string> helped_;
  std::map<std::string, std::string> types_;
  std::string family_;
  std::map<std::pair<std::string, Labels>, double> samples_;
};

} // namespace cgr_test
