// Remat from C++17: the functions of remat.h with owners that free, and errors that are thrown.
//
// Handles move and are not copied. A network may be used by many threads, a session by one at a time.
#ifndef REMAT_HPP
#define REMAT_HPP

#include "remat.h"

#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace remat {

// A call that failed. The text is that of remat_last_error.
class Error : public std::runtime_error {
public:
    Error(remat_status status, const char* text) : std::runtime_error(text), status_(status) {}
    remat_status status() const noexcept { return status_; }

private:
    remat_status status_;
};

inline void check(remat_status status) {
    if (status != REMAT_OK) throw Error(status, remat_last_error());
}

template <typename T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr remat_dtype value = REMAT_F32; };
template <> struct DTypeOf<double> { static constexpr remat_dtype value = REMAT_F64; };
template <> struct DTypeOf<std::int8_t> { static constexpr remat_dtype value = REMAT_I8; };
template <> struct DTypeOf<std::int16_t> { static constexpr remat_dtype value = REMAT_I16; };
template <> struct DTypeOf<std::int32_t> { static constexpr remat_dtype value = REMAT_I32; };
template <> struct DTypeOf<std::int64_t> { static constexpr remat_dtype value = REMAT_I64; };
template <> struct DTypeOf<std::uint8_t> { static constexpr remat_dtype value = REMAT_U8; };
template <> struct DTypeOf<std::uint16_t> { static constexpr remat_dtype value = REMAT_U16; };
template <> struct DTypeOf<std::uint32_t> { static constexpr remat_dtype value = REMAT_U32; };
template <> struct DTypeOf<std::uint64_t> { static constexpr remat_dtype value = REMAT_U64; };

// Elements that belong to a session.
template <typename T> struct Span {
    T* data;
    std::size_t size;
    T* begin() const { return data; }
    T* end() const { return data + size; }
    T& operator[](std::size_t i) const { return data[i]; }
};

// remat_options with all fields as they are unless set.
struct Options : remat_options {
    Options() { check(remat_options_init(this, sizeof(remat_options))); }
};

class Shapes {
public:
    Shapes() : p_(remat_shapes_new()) {
        if (!p_) throw std::bad_alloc();
    }
    Shapes& extent(const char* name, std::int64_t n) {
        check(remat_shapes_extent(p_.get(), name, n));
        return *this;
    }
    Shapes& input(const char* name, const std::vector<std::int64_t>& dims) {
        check(remat_shapes_input(p_.get(), name, dims.data(), dims.size()));
        return *this;
    }
    const remat_shapes* get() const { return p_.get(); }

private:
    struct Free {
        void operator()(remat_shapes* p) const { remat_shapes_free(p); }
    };
    std::unique_ptr<remat_shapes, Free> p_;
};

class Network {
public:
    explicit Network(const char* path, const Options& options = Options()) {
        remat_network* p = nullptr;
        check(remat_network_open(path, &options, &p));
        p_.reset(p);
    }
    Network(const void* data, std::size_t bytes, const Options& options = Options()) {
        remat_network* p = nullptr;
        check(remat_network_from_bytes(data, bytes, &options, &p));
        p_.reset(p);
    }
    std::vector<remat_port> inputs() const { return ports(remat_network_input_count, remat_network_input); }
    std::vector<remat_port> outputs() const { return ports(remat_network_output_count, remat_network_output); }
    const remat_network* get() const { return p_.get(); }

private:
    template <typename Count, typename Describe> std::vector<remat_port> ports(Count count, Describe describe) const {
        std::vector<remat_port> all(count(get()));
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].struct_size = sizeof(remat_port);
            check(describe(get(), i, &all[i]));
        }
        return all;
    }
    struct Free {
        void operator()(remat_network* p) const { remat_network_free(p); }
    };
    std::unique_ptr<remat_network, Free> p_;
};

class Session {
public:
    explicit Session(const Network& network) : Session(network.get(), nullptr) {}
    Session(const Network& network, const Shapes& shapes) : Session(network.get(), shapes.get()) {}

    // The memory of an input, to be written before a run.
    template <typename T> Span<T> input(const char* name) {
        void* data = nullptr;
        std::size_t bytes = 0;
        check(remat_session_input_data(p_.get(), name, DTypeOf<T>::value, &data, &bytes));
        return {static_cast<T*>(data), bytes / sizeof(T)};
    }
    void run() { check(remat_session_run(p_.get())); }
    // A run in the background. The session must outlive it; its destructor waits.
    std::future<void> run_async() {
        auto promise = std::make_unique<std::promise<void>>();
        std::future<void> future = promise->get_future();
        check(remat_session_run_async(p_.get(), &Session::ended, promise.get()));
        promise.release();
        return future;
    }
    // What the last run gave, until the next.
    template <typename T> Span<const T> output(const char* name) {
        const remat_tensor y = tensor(name);
        if (y.dtype != DTypeOf<T>::value) throw Error(REMAT_DTYPE, "an output of another element type");
        return {static_cast<const T*>(y.data), y.bytes / sizeof(T)};
    }
    remat_tensor tensor(const char* name) {
        remat_tensor y{};
        y.struct_size = sizeof y;
        check(remat_session_output(p_.get(), name, &y));
        return y;
    }
    remat_memory memory() {
        remat_memory m{};
        m.struct_size = sizeof m;
        check(remat_session_memory(p_.get(), &m));
        return m;
    }
    remat_session* get() const { return p_.get(); }

private:
    Session(const remat_network* network, const remat_shapes* shapes) {
        remat_session* p = nullptr;
        check(remat_session_new(network, shapes, &p));
        p_.reset(p);
    }
    static void ended(void* user, remat_status status) {
        const std::unique_ptr<std::promise<void>> promise(static_cast<std::promise<void>*>(user));
        if (status == REMAT_OK) {
            promise->set_value();
        } else {
            promise->set_exception(std::make_exception_ptr(Error(status, remat_last_error())));
        }
    }
    struct Free {
        void operator()(remat_session* p) const { remat_session_free(p); }
    };
    std::unique_ptr<remat_session, Free> p_;
};

}  // namespace remat

#endif  // REMAT_HPP
