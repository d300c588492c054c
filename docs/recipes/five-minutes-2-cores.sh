#!/bin/sh
# Five minutes on 2 cores: debug, a model of 8 million parameters, reads two thirds of the Go sources once.
#
#   docs/recipes/five-minutes-2-cores.sh                          to runs/five-minutes
#   OUT=runs/mine docs/recipes/five-minutes-2-cores.sh ~/text     your own text, as data tokenize takes it
#
# To continue after Ctrl-C, a crash or kill -9, run it again: files that exist are kept, and training
# goes on from its newest checkpoint. For another text or other settings, give another OUT.
#
# Expect 1.7359 bits/byte, 4.6 minutes and 476 MiB: measured on 2 cores of an AMD EPYC (Zen 5), idle, with
# the Go sources of Go 1.26.8 (5,734,400 of 9,003,261 tokens). See bench/results/run-five-minutes.md.
set -eu
out=${OUT:-runs/five-minutes}
mkdir -p "$out"

test -e "$out/tokenizer.json" || launcher data train-tokenizer --vocab 4096 --out "$out/tokenizer.json" "$@"
test -e "$out/tokens.arrow" || launcher data tokenize --tokenizer "$out/tokenizer.json" --out "$out/tokens.arrow" "$@"
launcher -np 2 train --data "$out/tokens.arrow" --out "$out/model" --timeout 0 \
  --flavor debug --steps 1400 --seq 256 --batch 16 --optimizer.lr 2e-3 --set optimizer.warmup=100 \
  --set optimizer.decay_frac=0.3 --save-every 2m --set log_every=50 --eval-every 100 --set eval_sequences=128
launcher -np 2 eval --checkpoint "$out/model" --max-tokens=-1
launcher -np 2 generate --checkpoint "$out/model" --max-tokens 200 --slide >"$out/sample.txt" \
  --prompt "// New returns " --prompt "func (r *Reader) " --prompt "package main

import (
"
test -e "$out/exported" || launcher convert --from "$out/model" --to "$out/exported"
echo "report: $out/model/report.html, texts: $out/sample.txt, for Hugging Face's libraries: $out/exported"
