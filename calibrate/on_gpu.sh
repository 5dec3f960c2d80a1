#!/usr/bin/env bash
# Measures every profile that leadline ships for an NVIDIA GPU, unattended, within 25 minutes:
# Qwen3.5-27B with a 0.8B draft model and MTP, Qwen3-8B with EAGLE-3 and DFlash, Llama-3.1-8B and
# Qwen3-30B-A3B with EAGLE-3. Before that the GPU tests and a campaign of a tiny model, so that what
# is broken shows at once; after that measured beside composed profiles, for those models that have one.
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
mkdir -p "$out/trial"

left() { echo $((end - $(date +%s))); }

gpu=$("$python" - <<'PY'
import re, torch
name = torch.cuda.get_device_name().lower().replace("nvidia", "")
print(re.sub(r"[^a-z0-9]+", "-", name).strip("-").split("-80gb")[0])
PY
) || { echo "no CUDA device, or torch is missing: $python" >&2; exit 2; }
"$python" -m pip freeze >"$out/packages.txt" 2>/dev/null

say() { echo "$*" | tee -a "$out/log.txt"; }

# At most a minute each for the tests (the campaign is one of them: it comes by itself) and the campaign.
try_out() {
    say "== GPU tests"
    timeout 60 "$python" -m pytest -m cuda -k "not tiny_campaign" -p no:cacheprovider tests/calibrate/cuda \
        2>&1 | tee "$out/tests.txt"
    tests=${PIPESTATUS[0]}
    say "GPU tests: exit code $tests"
    say "== tiny on $gpu"
    timeout --signal=TERM --kill-after=20 60 "$python" -m calibrate.cli --device cuda --model tiny \
        --budget 40s --quick --resume --out "$out/trial/tiny-$gpu.json" 2>&1 | tee -a "$out/log.txt"
    say "tiny: exit code ${PIPESTATUS[0]}"
    # Its fit may be refused: passes of a few microseconds are all launch. Cells there must be.
    grep -q '"measured"' "$out/trial/tiny-$gpu.cells.jsonl" || trial=1
}

# Each model may take its share of what is left, a little kept for the comparison.
measure() {
    local model=$1 models_left=$2
    local share=$((($(left) - 60) / models_left))
    if ((share < 60)); then
        say "$model: no time left; run again to go on"
        return
    fi
    say "== $model on $gpu, $share s"
    timeout --signal=TERM --kill-after=60 $((share + 30)) "$python" -m calibrate.cli --device cuda \
        --model "$model" --budget "$((share - 20))s" $quick --resume --out "$out/$model-$gpu.json" 2>&1 |
        tee -a "$out/log.txt"
    say "$model: exit code ${PIPESTATUS[0]}"
}

compare() {
    local model=$1 measured="$out/$1-$gpu.json" composed="scenarios/profiles/$1-${gpu%%-*}.json"
    if [[ ! -f $composed ]]; then
        say "$model: no composed profile for $gpu ($composed), nothing to compare"
    elif [[ ! -f $measured ]]; then
        say "$model: not measured or refused, not compared with $composed"
    else
        say "$model: compared with $composed"
        "$python" -c "from calibrate.profile_cli import app; app()" diff "$composed" "$measured" >"$out/$model-composed-measured.txt" 2>&1
        cat "$out/$model-composed-measured.txt"
    fi
}

tests=0 trial=0
try_out
remaining=$(wc -w <<<"$profiles")
for model in $profiles; do
    measure "$model" "$remaining"
    remaining=$((remaining - 1))
done
for model in $profiles; do compare "$model"; done
ls -l "$out"
exit $((tests ? tests : trial))
