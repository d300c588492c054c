#!/bin/sh
# Eight hours at most on 2 cores: small, a model of 103 million parameters, reads the Go sources five
# times. The tokenizer is that of five-minutes-2-cores.sh.
#
#   docs/recipes/night-2-cores.sh                          to runs/night
#   OUT=runs/mine docs/recipes/night-2-cores.sh ~/text     your own text, as data tokenize takes it
#
# To continue after Ctrl-C, a crash or kill -9, run it again: files that exist are kept, and training
# goes on from its newest checkpoint. For another text or other settings, give another OUT.
#
# Expect 1.39 bits/byte (8 % more at most), 205 minutes and 3,700 MiB on 2 cores of an AMD EPYC (Zen 5), idle,
# with the Go sources of Go 1.26.8 (45,056,000 tokens). This is extrapolated. It has not been run to the end:
# bench/results/run-five-minutes.md has the fit behind the loss. Time and memory are from
# bench/results/train-small.txt and train --dry-run.
set -eu
out=${OUT:-runs/night}
mkdir -p "$out"

test -e "$out/tokenizer.json" || launcher data train-tokenizer --vocab 4096 --out "$out/tokenizer.json" "$@"
test -e "$out/tokens.arrow" || launcher data tokenize --tokenizer "$out/tokenizer.json" --out "$out/tokens.arrow" "$@"
launcher -np 2 train --data "$out/tokens.arrow" --out "$out/model" --timeout 0 \
  --flavor small --steps 5500 --seq 512 --batch 16 --optimizer.lr 1e-3 --set optimizer.warmup=100 \
  --set optimizer.decay_frac=0.3 --set log_every=20 --eval-every 250 --set eval_sequences=64
launcher -np 2 eval --checkpoint "$out/model" --max-tokens=-1
launcher -np 2 generate --checkpoint "$out/model" --max-tokens 300 --slide >"$out/sample.txt" \
  --prompt "// New returns " --prompt "func (r *Reader) " --prompt "package main

import (
"
test -e "$out/exported" || launcher convert --from "$out/model" --to "$out/exported"
echo "report: $out/model/report.html, texts: $out/sample.txt, for Hugging Face's libraries: $out/exported"
