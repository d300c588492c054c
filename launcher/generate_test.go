package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/cli"
	"spmoe/launcher/record"
)

// trainedRun makes a run of some steps in the folder "runs/run", and returns the last line of its
// log.
func trainedRun(t *testing.T, more ...string) (done map[string]any) {
	t.Helper()
	data := text(t)
	t.Chdir(t.TempDir())
	out := succeed(t, tiny(data, append([]string{"--out", "runs/run", "--precision", "fp32", "--log-format", "json", "--steps", "30"}, more...)...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &done); err != nil {
		t.Fatal(err)
	}
	return done
}

// texts runs generate and returns its JSON lines, the last of which is of times.
func texts(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	got := launch(append([]string{"generate", "--json"}, args...)...)
	if got.code != cli.ExitOK {
		t.Fatalf("%q: exit code %d: %s", args, got.code, got.errOut)
	}
	var all []map[string]any
	for line := range strings.Lines(got.out) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, event)
	}
	if last := all[len(all)-1]; last["event"] != "done" || !(last["prefill_tokens"].(float64) > 0) {
		t.Errorf("%q ends with %v", args, last)
	}
	return all[:len(all)-1]
}

// What generate writes is the same on any number of ranks, alone and in a batch, in pieces and as
// JSON; and it is what the run's own sample was, here of a run in stages. One rank cannot continue
// that, and the error names the number that can.
func TestGenerate(t *testing.T) {
	done := trainedRun(t, "-np", "4", "--pp", "2", "--set", "pp_schedule=ZBVZeroBubble", "--batch", "16", "--set", "model.layers=4", "--set", "sample_tokens=40")
	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--steps", "100"}, "pp 2 does not divide a world of 1", "the run had -np 4")
	as := []string{"--prompt", "// New returns ", "--max-tokens", "40", "--endless", "--slide"}
	one := texts(t, as...)[0]
	if one["text"] != done["sample"] || one["text"] == "" || one["reason"] != "length" || one["prompt"] != "// New returns " {
		t.Errorf("%v, the sample of the run is %q", one, done["sample"])
	}
	greedy := append(as[:len(as):len(as)], "--temperature", "0")
	best := texts(t, append(greedy, "--seed", "2")...)[0]
	for _, ranks := range []string{"1", "4"} {
		all := texts(t, append([]string{"-np", ranks, "--prompt", "rank ", "--prompt", "é"}, as...)...)
		again := texts(t, append([]string{"-np", ranks, "--prompt", "rank ", "--prompt", "weights", "--prompt", "more"}, as...)...)
		if len(all) != 3 || len(again) != 4 || all[0]["text"] != again[0]["text"] || all[1]["text"] == again[1]["text"] {
			t.Errorf("%s ranks: %v and %v", ranks, all, again)
		}
		plain := launch(append([]string{"generate", "-np", ranks, "--checkpoint", "runs/run"}, greedy...)...)
		if plain.code != cli.ExitOK || plain.out != "// New returns "+best["text"].(string)+"\n" {
			t.Errorf("%s ranks: %+v, want %q", ranks, plain, best["text"])
		} else if !strings.Contains(plain.errOut, "prefill: 15 tokens, ") || !strings.Contains(plain.errOut, "decode: ") {
			t.Errorf("%s ranks: %q", ranks, plain.errOut)
		}
	}
	if other := texts(t, append(as, "--seed", "2")...)[0]; other["text"] == one["text"] || best["text"] == one["text"] {
		t.Error("another seed, or always the best token, gives the same text")
	}

	// Several texts are printed in order, each with its number above it.
	file := write(t, "prompts", "first\r\n\nsecond one\n")
	batch := []string{"--prompt", "zeroth", "--prompt-file", file, "--max-tokens", "5", "--temperature", "0"}
	got := launch(append([]string{"generate"}, batch...)...)
	want := ""
	for i, event := range texts(t, batch...) {
		prompt := []string{"zeroth", "first", "second one"}[i]
		want += fmt.Sprintf("== %d: %q\n%s%s\n", i+1, prompt, prompt, event["text"])
	}
	if got.code != cli.ExitOK || got.out != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// Every token has a line with its log-probability and its experts, the same to the last digit on
// another number of ranks. Those of a token of the prompt are those that it has in a text.
func TestGenerateLogProbs(t *testing.T) {
	trainedRun(t, "--precision", "bf16")
	var all []string
	for _, ranks := range []string{"1", "2"} {
		got := launch("generate", "-np", ranks, "--prompt", "rank ", "--prompt", "weights of", "--max-tokens", "12", "--endless", "--logprobs", "probs.jsonl")
		text, err := os.ReadFile("probs.jsonl")
		if got.code != cli.ExitOK || err != nil {
			t.Fatalf("%s (%v)", got.errOut, err)
		}
		all = append(all, string(text))
	}
	type sampled struct {
		Token   int32
		LogProb float64
		Experts [][]int32
	}
	var tokens []sampled
	lines := strings.Split(strings.TrimSpace(all[0]), "\n")
	for _, line := range lines {
		var token sampled
		if err := json.Unmarshal([]byte(line), &token); err != nil || !(token.LogProb < 0) || len(token.Experts) != 1 || len(token.Experts[0]) == 0 {
			t.Errorf("%s: %v", line, err)
		}
		tokens = append(tokens, token)
	}
	var next sampled
	launch("generate", "--prompt", "rank "+string(rune(tokens[0].Token)), "--max-tokens", "1", "--endless", "--logprobs", "probs.jsonl")
	text, err := os.ReadFile("probs.jsonl")
	if err := errors.Join(err, json.Unmarshal(text, &next)); err != nil || fmt.Sprint(next.Experts) != fmt.Sprint(tokens[1].Experts) {
		t.Errorf("the last token of a prompt has experts %v, in a text %v (%v)", next.Experts, tokens[1].Experts, err)
	}
	if len(lines) != 24 || all[0] != all[1] {
		t.Errorf("%d lines, want 24; on one rank and on two they are\n%s\n%s", len(lines), all[0], all[1])
	}
}

// A model of Hugging Face's form says what its run says, with the tokenizer that is beside it or is
// given.
func TestGenerateFromHuggingFace(t *testing.T) {
	trainedRun(t)
	succeed(t, "convert", "--from", "runs/run", "--to", "hf", "--dtype", "fp32")
	log, err := record.Read("runs/run")
	if err != nil {
		t.Fatal(err)
	}
	want := float64(log.Done.HeldOut)
	exported := "--checkpoint hf --precision fp32 --seq 32 --max-tokens 128 --data " + resolved(t, "--config", "runs/run/config.toml").Data[0]
	for _, args := range []string{"", exported} {
		if got := evaluated(t, strings.Fields(args)...)["loss"].(float64); math.Abs(got-want) > 1e-6 {
			t.Errorf("eval %s: loss %v, training measured %v", args, got, want)
		}
	}
	if err := os.RemoveAll("hf/tokenizer.json"); err != nil {
		t.Fatal(err)
	}
	refuse(t, cli.ExitUsage, []string{"generate", "--checkpoint", "hf", "--prompt", "x"}, "hf has no tokenizer.json", "--tokenizer")
	as := []string{"--prompt", "the rank ", "--max-tokens", "20", "--context", "32", "--precision", "bf16"}
	said := texts(t, append(as, "--checkpoint", "runs/run")...)[0]
	got := texts(t, append(as, "--checkpoint", "hf", "--tokenizer", "bytes")...)[0]
	if got["text"] != said["text"] || got["text"] == "" {
		t.Errorf("%v, the run says %v", got, said)
	}
	// Its texts may have to begin with a token, which is no part of what is shown.
	write(t, "hf/tokenizer_config.json", `{"add_bos_token": true, "bos_token": "the "}`)
	as[1] = "rank "
	if begun := texts(t, append(as, "--checkpoint", "hf", "--tokenizer", "bytes")...)[0]; begun["text"] != said["text"] || begun["prompt"] != "rank " {
		t.Errorf("%v, want the text of %v", begun, said)
	}
}

// Texts that end early say why, also if the command was told to stop.
func TestGenerateEnds(t *testing.T) {
	trainedRun(t)
	as := []string{"generate", "--prompt", "the ", "--temperature", "0", "--endless"}
	whole := strings.TrimSuffix(strings.TrimPrefix(launch(append(as, "--max-tokens", "20")...).out, "the "), "\n")
	if len(whole) != 20 {
		t.Fatalf("%q", whole)
	}
	full := launch(append(as, "--max-tokens", "100")...) // of a run with sequences of 32 tokens
	if full.code != cli.ExitOK || !strings.HasPrefix(full.out, "the "+whole) || len(full.out) != 4+29+1 ||
		!strings.Contains(full.errOut, "note: the context of 32 tokens was full") || !strings.Contains(full.errOut, "up to 4096") || !strings.Contains(full.errOut, "--slide") {
		t.Errorf("%+v", full)
	}
	stop := whole[5:7]
	before, _, _ := strings.Cut(whole, stop)
	if got := launch(append(as, "--max-tokens", "20", "--stop", "none of this", "--stop", stop)...); got.code != cli.ExitOK || got.out != "the "+before+"\n" {
		t.Errorf("until %q: %+v, the whole text is %q", stop, got, whole)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	got := launchTo(ctx, writerFunc(func(b []byte) {
		if n += len(b); n >= 10 {
			cancel()
		}
	}), append(as, "-np", "2", "--max-tokens", "2000", "--context", "4096")...)
	if got.code != cli.ExitInterrupted || !strings.HasPrefix(got.out, "the ") || len(got.out) < 11 || len(got.out) > 200 || !strings.HasSuffix(got.out, "\n") || !strings.Contains(got.errOut, "decode: ") {
		t.Errorf("%+v", got)
	}
	refuse(t, cli.ExitInterrupted, []string{"eval"})
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// generate and eval report a model that has diverged.
func TestGenerateFromBrokenModel(t *testing.T) {
	data := text(t)
	t.Chdir(t.TempDir())
	if got := launch(tiny(data, "--out", "runs/run", "--precision", "fp32", "--optimizer.lr", "1e18", "--steps", "1")...); got.code != cli.ExitFailed {
		t.Fatalf("%+v", got)
	}
	if got := launch("generate", "--prompt", "x"); got.code != cli.ExitFailed || !strings.Contains(got.errOut, "scores are not finite") {
		t.Errorf("%+v", got)
	}
	got := launch("eval", "--json")
	if got.code != cli.ExitFailed || !strings.Contains(got.out, `"loss": null`) || !strings.Contains(got.errOut, "training has diverged") {
		t.Errorf("%+v", got)
	}
}

// evaluated returns what eval measures.
func evaluated(t *testing.T, args ...string) (r map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(succeed(t, append([]string{"eval", "--json"}, args...)...)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// eval measures what the last evaluation of the run has measured, on any number of ranks, and keeps
// documents apart if training did.
func TestEval(t *testing.T) {
	short := t.TempDir() // a window holds several of its documents
	for i := range 300 {
		write(t, fmt.Sprintf("%s/%d", short, i), strings.Repeat(fmt.Sprintf("row %d. ", i), 3+i%3))
	}
	done := trainedRun(t, "--set", "eval_sequences=7", "--set", "document_mask=true", "--data", short)
	for _, args := range []string{"-np 1 --batch 1", "-np 2 --batch 8", "-np 4 --batch 1"} {
		r := evaluated(t, strings.Fields(args)...)
		if r["loss"] != done["last_held_out_loss"] || r["windows"] != 7.0 || r["tokens"] != 7*32.0 || r["seq"] != 32.0 || r["tokenizer"] != "bytes" {
			t.Errorf("%s: %v, at the end of the run %v", args, r, done)
		}
		if bits := r["loss"].(float64) / math.Ln2; math.Abs(r["bits_per_byte"].(float64)-bits) > 1e-12 || math.Abs(r["bits_per_byte"].(float64)-done["last_held_out_bits_per_byte"].(float64)) > 1e-12 {
			t.Errorf("%v bits/byte, at the end of the run %v", r["bits_per_byte"], done["last_held_out_bits_per_byte"])
		}
	}
	all, some := evaluated(t, "--max-tokens", "-1"), evaluated(t, "--max-tokens", "100", "--seq", "16")
	if !(all["windows"].(float64) > 7) || some["windows"] != 6.0 || some["seq"] != 16.0 || !(all["standard_error"].(float64) < some["standard_error"].(float64)) {
		t.Errorf("of all: %v, of few: %v", all, some)
	}
	other := text(t)
	if r := evaluated(t, "--data", other, "--precision", "bf16", "--checkpoint", "runs/run/step-00000030"); r["loss"] == all["loss"] || r["precision"] != "bf16" {
		t.Errorf("of another text: %v", r)
	}
	if out := succeed(t, "eval", "--max-tokens", "20"); !strings.Contains(out, "over 1 window of 20 tokens") {
		t.Errorf("of less than a window: %s", out)
	}
}
