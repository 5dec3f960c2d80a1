#!/usr/bin/env bash
# Measures every profile that leadline ships for an NVIDIA GPU, unattended, within 25 minutes:
# Qwen3.5-27B with a 0.8B draft model and MTP, Qwen3-8B with EAGLE-3 and DFlash, Llama-3.1-8B and
# Qwen3-30B-A3B with EAGLE-3. Then runs the GPU tests, and sets measured beside composed profiles.
#
#   calibrate/on_gpu.sh [FOLDER]        run again to go on: finished cells are kept beside each profile
#   PYTHON=...  MINUTES=25  QUICK=--quick  PROFILES="qwen3-8b ..."  change the defaults
#
# One GPU; for several, one model at a time: torchrun --nproc-per-node N -m calibrate.cli --model ...
# Needs torch with CUDA and leadline's own dependencies. No setting of the device is changed.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-gpu-profiles}
python=${PYTHON:-python3}
quick=${QUICK:-}
profiles=${PROFILES:-qwen3.5-27b llama-3.1-8b qwen3-8b qwen3-30b-a3b}
end=$(($(date +%s) + 60 * ${MINUTES:-25}))
export PYTHONUNBUFFERED=1 PYTORCH_ALLOC_CONF=${PYTORCH_ALLOC_CONF:-expandable_segments:True}
mkdir -p "$out"

left() { echo $((end - $(date +%s))); }

gpu=$("$python" - <<'PY'
import re, torch
name = torch.cuda.get_device_name().lower().replace("nvidia", "")
print(re.sub(r"[^a-z0-9]+", "-", name).strip("-").split("-80gb")[0])
PY
) || { echo "no CUDA device, or torch is missing: $python" >&2; exit 2; }
"$python" -m pip freeze >"$out/packages.txt" 2>/dev/null

# Each model may take its share of what is left, one sixth of the time kept for tests and comparison.
measure() {
    local model=$1 models_left=$2
    local share=$(((($(left)) - 60 * ${MINUTES:-25} / 6) / models_left))
    if ((share < 60)); then
        echo "$model: no time left; run again to go on" | tee -a "$out/log.txt"
        return
    fi
    echo "== $model on $gpu, $share s" | tee -a "$out/log.txt"
    timeout --signal=TERM --kill-after=60 $((share + 30)) "$python" -m calibrate.cli --device cuda \
        --model "$model" --budget "$((share - 20))s" $quick --resume --out "$out/$model-$gpu.json" 2>&1 |
        tee -a "$out/log.txt"
    echo "$model: exit code ${PIPESTATUS[0]}" | tee -a "$out/log.txt"
}

compare() {
    local model=$1 measured="$out/$1-$gpu.json" composed="scenarios/profiles/$1-${gpu%%-*}.json"
    if [[ -f $measured && -f $composed ]]; then
        "$python" -c "from calibrate.profile_cli import app; app()" diff "$composed" "$measured" >"$out/$model-composed-measured.txt" 2>&1
        cat "$out/$model-composed-measured.txt"
    fi
}

remaining=$(wc -w <<<"$profiles")
for model in $profiles; do
    measure "$model" "$remaining"
    remaining=$((remaining - 1))
done
timeout $(($(left) > 60 ? $(left) : 60)) "$python" -m pytest -m cuda -p no:cacheprovider tests/calibrate \
    2>&1 | tee "$out/tests.txt"
tests=${PIPESTATUS[0]}
for model in $profiles; do compare "$model"; done
ls -l "$out"
exit "$tests"
