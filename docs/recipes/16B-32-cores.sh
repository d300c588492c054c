#!/bin/sh
# The whole 16B, DeepSeek-V2-Lite with 15.7 billion parameters, on one server with 32 cores and 256 GiB.
#
#   docs/recipes/16B-32-cores.sh                     steps of 16,384 tokens on the Go sources
#   STEPS=100 OUT=runs/mine docs/recipes/16B-32-cores.sh ~/text
#
# It needs 229 GiB of memory and 120 GB of disk, because one checkpoint is 117 GiB. With 512 GiB, leave
# optimizer.moments out and give -np 16 --batch 64. To continue, run it again with more STEPS, and
# with KEEP=0 if there is no room for a second checkpoint: then the first one is removed when
# the second has filled the disk.
#
# Expect 1 to 2 minutes to the first step and 46 seconds per step on an Intel Xeon with AMX (32 of its virtual
# cores). bench/results/16B.md has the two steps that were recorded; nothing longer has been run.
set -eu
out=${OUT:-runs/16B}
mkdir -p "$out"

test -e "$out/tokenizer.json" || launcher data train-tokenizer --vocab 102400 --out "$out/tokenizer.json" "$@"
test -e "$out/tokens.arrow" || launcher data tokenize --tokenizer "$out/tokenizer.json" --out "$out/tokens.arrow" "$@"
resume=
test -e "$out/model/config.toml" && resume=--resume
launcher -np 8 train $resume --data "$out/tokens.arrow" --out "$out/model" \
  --flavor 16B --steps "${STEPS:-20}" --seq 512 --batch 32 --micro-batch 1 --recompute selective \
  --set optimizer.moments=bf16 --set optimizer.warmup=20 --set log_every=1 --eval-every 0 --set eval_sequences=16 \
  --set sample_tokens=0 --save-every 0 --set keep="${KEEP:-2}"
