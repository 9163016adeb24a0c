// Runs a model on several threads within a memory budget, each run in the background: see classify.c.
//
//     classify MODEL.onnx INPUT.f32 THREADS BUDGET_BYTES

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <remat.hpp>
#include <thread>

namespace {

std::vector<float> floats(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<float> all(bytes.size() / sizeof(float));
    std::memcpy(all.data(), bytes.data(), all.size() * sizeof(float));
    return all;
}

std::vector<float> classify(const remat::Network& network, const remat::Shapes& shapes, const std::vector<float>& image) {
    remat::Session session(network, shapes);
    const auto x = session.input<float>(network.inputs()[0].name);
    if (x.size != image.size()) throw std::runtime_error("the file has another number of floats than the input");
    std::memcpy(x.data, image.data(), image.size() * sizeof(float));
    for (int run = 0; run < 3; ++run) session.run_async().get();
    const auto y = session.output<float>(network.outputs()[0].name);
    return {y.begin(), y.end()};
}

int run(char** argv) {
    remat::Options options;
    options.threads = 1;  // of each session
    options.memory_budget_bytes = std::strtoull(argv[4], nullptr, 10);
    const remat::Network network(argv[1], options);

    remat::Shapes shapes;
    const remat_port port = network.inputs().at(0);
    for (std::int64_t axis = 0; axis < port.rank; ++axis) {
        if (port.symbols[axis]) shapes.extent(port.symbols[axis], 1);
    }
    const std::vector<float> image = floats(argv[2]);
    std::vector<std::future<std::vector<float>>> results;
    for (int t = 0; t < std::atoi(argv[3]); ++t) {
        results.push_back(std::async(std::launch::async, [&] { return classify(network, shapes, image); }));
    }
    std::vector<float> first;
    bool same = true;
    for (auto& result : results) {
        const std::vector<float> y = result.get();
        if (first.empty()) first = y;
        same = same && y == first;
    }
    for (std::size_t i = 0; i < first.size(); ++i) std::printf("class %zu: %.9g\n", i, static_cast<double>(first[i]));
    std::printf("%zu threads give %s\n", results.size(), same ? "the same values" : "different values");
    return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "classify MODEL.onnx INPUT.f32 THREADS BUDGET_BYTES\n");
        return 2;
    }
    try {
        return run(argv);
    } catch (const remat::Error& e) {
        std::fprintf(stderr, "%s error: %s\n", remat_status_name(e.status()), e.what());
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
    }
    return 1;
}
