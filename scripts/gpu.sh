#!/usr/bin/env bash
# Checks and measures Remat on an NVIDIA GPU, and prints one table at the end.
#
#   scripts/gpu.sh                    on cuda:0; about ten minutes after the build
#   scripts/gpu.sh --device cuda:1
#   scripts/gpu.sh --software         on the device in software, with less work: shows that the script itself works
#   scripts/gpu.sh --programs DIR     with the programs remat, suite, costs and operators of DIR, which are not built then
#   scripts/gpu.sh --only bits        one part: operators, bits, costs, digits, repeat, networks, torch, sanitizer
#
# Needs the driver, Python 3.10 with venv, and a Rust toolchain unless there is --programs. No toolkit of CUDA: the compiler
# NVRTC is installed from PyPI into target/gpu/venv unless REMAT_CUDA_LIBRARIES names its folder. PyTorch is compared where
# REMAT_PYTORCH (a Python; default python3) has it, and compute-sanitizer is used where it is found.
#
# Every part has a time limit, and a part that fails does not end the script. Logs lie in target/gpu. The exit code is 0 if no
# part failed, 1 if one did, and 2 if there is nothing to run on.
set -u
export RUST_BACKTRACE=0
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

device=cuda:0 software='' programs='' only=''
while [ $# -gt 0 ]; do
    case $1 in
        --device) device=${2:?--device wants a name}; shift ;;
        --software) software=1 device=cuda-sim:0 ;;
        --programs) programs=$(realpath "${2:?--programs wants a folder}"); shift ;;
        --only) only=${2:?--only wants a part}; shift ;;
        *) sed -n '2,/^set -u/p' "${BASH_SOURCE[0]}" | sed '$d; s/^# \{0,1\}//'; exit 2 ;;
    esac
    shift
done

out=$PWD/target/gpu
mkdir -p "$out"
rows=() failed=0
pytorch=${REMAT_PYTORCH:-python3}

# row PART STATUS TEXT: a row of the table, shown at once, too.
row() {
    rows+=("$1"$'\t'"$2"$'\t'"$3")
    printf '%-24s %-8s %s\n' "$1" "$2" "$3"
    if [ "$2" = FAILED ]; then failed=1; fi
}

# limited SECONDS LOG COMMAND ...: runs it with a limit and its output in a log; gives its status, 124 for one that took too long.
limited() {
    local seconds=$1 log=$2
    shift 2
    timeout --kill-after=15 "$seconds" "$@" >"$out/$log" 2>&1 </dev/null
}

# why STATUS LOG: the reason of a failure in a line.
why() {
    case $1 in
        124 | 137) echo "took too long; see $out/$2" ;;
        *) echo "$(grep -aE 'error|panicked|REMAT_|differ' "$out/$2" | tail -n 1 | cut -c 1-160) (status $1; $out/$2)" ;;
    esac
}

wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

# field FILE NAME: a field of the last line of a file that is an object of JSON, or of the whole file.
field() {
    python3 - "$1" "$2" <<'PYTHON'
import json, sys
text = open(sys.argv[1]).read()
try:
    value = json.loads(text)
except ValueError:
    value = json.loads(text.strip().splitlines()[-1])
for name in sys.argv[2].split("."):
    value = value[name]
print(value)
PYTHON
}

environment() {
    local missing=''
    for need in python3 timeout; do
        command -v "$need" >/dev/null || missing+=" $need"
    done
    [ -n "$programs" ] || command -v cargo >/dev/null || missing+=' cargo(rustup.rs)'
    if [ -n "$missing" ]; then
        row environment FAILED "missing:$missing"
        finish 2
    fi
    cuda=''
    if [ -n "$software" ]; then
        row driver skipped 'the device in software needs none'
    elif ! command -v nvidia-smi >/dev/null; then
        row driver - 'there is no nvidia-smi: the driver may be missing'
    elif limited 30 smi.log nvidia-smi &&
        limited 30 gpus.log nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; then
        cuda=$(sed -n 's/.*CUDA Version: *\([0-9.]*\).*/\1/p' "$out/smi.log" | head -n 1)
        row driver ok "$(head -n 1 "$out/gpus.log"), CUDA $cuda"
    else
        row driver FAILED "nvidia-smi: $(tail -n 1 "$out/smi.log")"
    fi
}

# The compiler. A driver loads PTX of its own version of CUDA or an older one, so an older driver gets an older compiler.
compiler() {
    if [ -n "${REMAT_CUDA_LIBRARIES:-}" ]; then
        row nvrtc ok "in $REMAT_CUDA_LIBRARIES"
        return
    fi
    local version=12.9.86
    case $cuda in
        12.?) [ "$cuda" = 12.9 ] || version="$cuda.*" ;;
        11.* | 10.*) row nvrtc FAILED "the driver knows CUDA $cuda, and 12.0 is needed"; finish 2 ;;
    esac
    local venv=$out/venv
    if ! [ -x "$venv/bin/python" ] && ! limited 120 venv.log python3 -m venv "$venv"; then
        row nvrtc FAILED "python3 -m venv: $(tail -n 1 "$out/venv.log")"
        finish 2
    fi
    if ! limited 300 pip.log "$venv/bin/python" -m pip install --quiet "nvidia-cuda-nvrtc-cu12==$version"; then
        row nvrtc FAILED "pip install nvidia-cuda-nvrtc-cu12==$version: $(tail -n 1 "$out/pip.log")"
        finish 2
    fi
    REMAT_CUDA_LIBRARIES=$(echo "$venv"/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib)
    export REMAT_CUDA_LIBRARIES
    row nvrtc ok "$version"
}

build() {
    if [ -n "$programs" ]; then
        row build skipped "programs of $programs"
        return
    fi
    local start=$SECONDS features=()
    [ -z "$software" ] || features=(--features cuda-sim)
    programs=$out/programs
    mkdir -p "$programs"
    if ! limited 3600 build.log cargo build --release -p remat-cli "${features[@]}" ||
        ! limited 1800 build-examples.log cargo build --release -p remat-cuda --example costs --example operators ||
        ! limited 1800 build-tests.log cargo test --release --no-run -p remat-cuda --test suite; then
        row build FAILED "see $out/build*.log"
        finish 2
    fi
    local target suite
    target=$(cargo metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    suite=$(sed -n 's/.*Executable .*(\(.*\))$/\1/p' "$out/build-tests.log" | tail -n 1)
    ln -sf "$target/release/remat" "$target/release/examples/costs" "$target/release/examples/operators" "$programs/"
    ln -sf "$(realpath "$suite")" "$programs/suite"
    row build ok "$((SECONDS - start)) s"
}

# The device answers, and what launches, events and copies cost.
costs() {
    limited 120 costs.log "$programs/costs" "$device"
    local status=$?
    if [ $status -ne 0 ]; then
        row device FAILED "$(grep -a "^error" "$out/costs.log" | sed "s/looked for.*;/nowhere;/") (status $status; $out/costs.log)"
        finish 2
    fi
    row device ok "$(sed -n 's/^device *//p' "$out/costs.log"), $(sed -n 's/^compiler *//p' "$out/costs.log")"
    wanted costs || return
    local line
    while read -r line; do
        row costs ok "$line"
    done < <(grep -E '^(compile |launch|event|copy)' "$out/costs.log" | tr -s ' ')
}

# The samples of all operators on the device, beside the CPU; and the bits of their launches beside the software device's.
suite() {
    local name=$1 test=$2 seconds=$3 status
    wanted "$name" || return
    local sample=()
    # all of them twice in software take longer than the rest
    [ -z "$software" ] || sample=(REMAT_SAMPLES=softmax)
    limited "$seconds" "$name.log" env "${sample[@]}" REMAT_CUDA_DEVICE="$device" "$programs/suite" "$test" --nocapture --test-threads 1
    status=$?
    local said
    said=$(grep -aoE '[0-9]+ cases on .*|replayed .*' "$out/$name.log" | tail -n 1)
    if [ $status -eq 0 ] && [ -n "$said" ]; then
        row "$name" ok "$said"
    elif [ $status -eq 0 ]; then
        row "$name" FAILED "nothing ran; see $out/$name.log"
    else
        row "$name" FAILED "${said:+$said; }$(why $status "$name.log")"
    fi
}

# digits NAME SECONDS ARGS ...: trains digits, with the results in NAME.json.
digits() {
    local name=$1 seconds=$2
    shift 2
    limited "$seconds" "$name.log" "$programs/remat" train digits --device "$device" --json "$out/$name.json" "$@"
}

budgets() {
    wanted digits || return
    if [ -n "$software" ]; then
        row digits skipped 'takes minutes in software'
        return
    fi
    local percent status hashes=() peak budget
    for percent in 100 50; do
        digits "digits-$percent" 150 --steps 60 --memory-budget "$percent%"
        status=$?
        # a run that ends before its last epoch
        if [ $status -ne 0 ] || ! peak=$(field "$out/digits-$percent.json" peak_bytes); then
            row "digits at $percent %" FAILED "$(why $status "digits-$percent.log")"
            continue
        fi
        budget=$(field "$out/digits-$percent.json" budget_bytes)
        hashes+=("$(field "$out/digits-$percent.json" weights_sha256)")
        local text
        text="peak $peak of $budget bytes, $(printf '%.2f' "$(field "$out/digits-$percent.json" step_ms_median)") ms a step"
        text+=", $(field "$out/digits-$percent.json" memory.stats.host_fallback_ops) operators on the host"
        if [ "$peak" -le "$budget" ]; then row "digits at $percent %" ok "$text"; else row "digits at $percent %" FAILED "$text"; fi
    done
    if [ ${#hashes[@]} -eq 2 ] && [ "${hashes[0]}" = "${hashes[1]}" ]; then
        row 'digits, same weights' ok "${hashes[0]:0:16}"
    else
        row 'digits, same weights' FAILED "${hashes[*]:-no run ended}"
    fi
}

# The same two steps, 20 times.
repeat() {
    wanted repeat || return
    if [ -n "$software" ]; then
        row repeat skipped 'takes minutes in software'
        return
    fi
    local k sums='' start=$SECONDS runs=0
    for k in $(seq 20); do
        [ $((SECONDS - start)) -lt 180 ] || break
        if digits repeat 60 --steps 2 --seed 7; then
            sums+="$(field "$out/repeat.json" weights_sha256)"$'\n'
            runs=$k
        else
            row repeat FAILED "run $k: $(why $? repeat.log)"
            return
        fi
    done
    local different
    different=$(printf '%s' "$sums" | sort -u | wc -l)
    local status=ok
    [ "$different" -eq 1 ] || status=FAILED
    row repeat "$status" "$runs runs of the same steps, $different different results"
}

# bench NAME WORK ARGS ...: a row with the time of a step; sets `ms`.
bench() {
    local name=$1 work=$2 status
    shift 2
    ms=''
    limited 120 "$name.log" "$programs/remat" bench "$work" --device "$device" --compiled --json "$out/$name.json" "$@"
    status=$?
    if [ $status -ne 0 ] || ! ms=$(field "$out/$name.json" latency_ms.p50); then
        row "$name" FAILED "$(why $status "$name.log")"
        return 1
    fi
    row "$name" ok "$(printf '%.2f' "$ms") ms a step, peak $(field "$out/$name.json" peak_bytes) bytes"
}

networks() {
    wanted networks || return
    local works=(train:gpt train:resnet50) args=() percent=50 work free
    # of a network that small most is parameters, which are always there
    [ -z "$software" ] || works=(train:mlp) args=(--batch 2 --seconds 0.1) percent=95
    for work in "${works[@]}"; do
        bench "${work#train:}" "$work" "${args[@]}" || continue
        free=$ms
        bench "${work#train:} at $percent %" "$work" --memory-budget "$percent%" "${args[@]}" || continue
        row "${work#train:}, ratio" ok "$(python3 -c "print(f'{$ms / $free:.2f} times as long at $percent %')")"
    done
}

# The same operators and networks by PyTorch, behind Remat's.
torch() {
    wanted torch || return
    local small=()
    [ -z "$software" ] || small=(--small)
    limited 120 operators.log "$programs/operators" "$device" "${small[@]}"
    local status=$? line
    while read -r line; do row operator ok "$line"; done < <(grep -a '^remat' "$out/operators.log" | tr -s ' ')
    [ $status -eq 0 ] || row operator FAILED "$(why $status operators.log)"
    if ! limited 60 torch-here.log "$pytorch" -c 'import torch'; then
        row torch skipped "$pytorch has no PyTorch (REMAT_PYTORCH names another Python)"
        return
    fi
    if ! limited 60 torch-here.log "$pytorch" -c 'import torch; torch.zeros(1, device="cuda")'; then
        row torch skipped "the PyTorch of $pytorch reaches no GPU: $(tail -n 1 "$out/torch-here.log" | cut -c 1-100)"
        return
    fi
    limited 240 torch.log "$pytorch" scripts/gpu_torch.py
    status=$?
    while read -r line; do row torch ok "$line"; done < <(grep -a '^torch' "$out/torch.log" | tr -s ' ')
    [ $status -eq 0 ] || row torch FAILED "$(why $status torch.log)"
}

sanitizer() {
    wanted sanitizer || return
    if [ -n "$software" ]; then
        row sanitizer skipped 'the device in software checks its memory by itself'
        return
    fi
    local program
    program=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -n 1)
    if [ -z "$program" ]; then
        row sanitizer skipped 'there is no compute-sanitizer'
        return
    fi
    local op start=$SECONDS clean=0 faulty='' late=0
    for op in matmul conv2d attention softmax reduce sort scatter batch_norm recurrent max_pool2d; do
        if [ $((SECONDS - start)) -gt 150 ]; then
            late=$((late + 1))
        elif limited 60 "sanitizer-$op.log" env REMAT_SAMPLES=$op REMAT_CUDA_DEVICE="$device" "$program" --error-exitcode 9 \
            "$programs/suite" samples_agree --nocapture --test-threads 1; then
            clean=$((clean + 1))
        else
            faulty+=" $op"
        fi
    done
    local text="$clean operators without a fault${faulty:+; faults or failures:$faulty}"
    [ $late -eq 0 ] || text+="; $late not begun for want of time"
    if [ -z "$faulty" ]; then row sanitizer ok "$text"; else row sanitizer FAILED "$text, see $out/sanitizer-*.log"; fi
}

# finish CODE: prints the table and ends.
finish() {
    local r part status text
    {
        echo
        echo '| part | status | |'
        echo '|---|---|---|'
        for r in "${rows[@]}"; do
            IFS=$'\t' read -r part status text <<<"$r"
            echo "| $part | $status | $text |"
        done
        echo
    } | tee "$out/table.md"
    echo "logs and the table: $out; it took $SECONDS s"
    exit "$1"
}

environment
compiler
build
costs
suite operators samples_agree 300
suite bits launches_on_a_gpu 600
budgets
repeat
networks
torch
sanitizer
finish $failed
