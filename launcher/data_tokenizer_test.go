package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/cli"
)

// trainedTokenizer trains a tokenizer of 300 tokens on a folder of text and returns its file.
func trainedTokenizer(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "own.json")
	out := succeed(t, "data", "train-tokenizer", "--data", data, "--vocab", "300", "--out", path)
	if !strings.Contains(out, ": 300 tokens, from ") || !strings.Contains(out, "bytes/token of validation text") {
		t.Errorf("it says %q", out)
	}
	return path
}

func TestTrainTokenizer(t *testing.T) {
	data := text(t)
	first, second := trainedTokenizer(t, data), trainedTokenizer(t, data)
	a, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(second); err != nil || !bytes.Equal(a, b) {
		t.Errorf("the same text gives another tokenizer: %v", err)
	}
	if tok, err := datasets.OpenTokenizer(first); err != nil || len(tok.Encode([]byte(" the rank"))) > 6 {
		t.Errorf("words of the text take many tokens: %v", err)
	}
	got := launch("data", "train-tokenizer", filepath.Join(data, "0.txt"), "--vocab", "100000", "--out", filepath.Join(t.TempDir(), "large.json"))
	if got.code != cli.ExitOK || !strings.Contains(got.errOut, "warning: only ") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data}, "needs --out FILE")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data, "--out", first}, "exists already")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", data, "--out", "x", "--vocab", "256"}, "--vocab is 256: give 257")
	refuse(t, cli.ExitUsage, []string{"data", "train-tokenizer", "missing", "--out", "x"}, "missing")
	refuse(t, cli.ExitInterrupted, []string{"data", "train-tokenizer", data, "--out", "x"})
	if _, err := os.Stat("x"); !os.IsNotExist(err) {
		t.Error("a refused command writes its file")
	}
}

// A run takes its vocabulary from the tokenizer, and does without the file that it was given from
// then on.
func TestTokenizerOfRun(t *testing.T) {
	data := text(t)
	own := trainedTokenizer(t, data)
	if err := os.WriteFile(filepath.Join(filepath.Dir(own), "tokenizer_config.json"), []byte(`{"eos_token": "<|endoftext|>"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "2", "--tokenizer", own)...)
	whole := succeed(t, args...)
	if start := jsonEvents(t, whole, "start")[0]; start["tokenizer"] != own+", 300 tokens; documents end with <|endoftext|> (0), eos_token of tokenizer_config.json" {
		t.Errorf("the log says %v", start["tokenizer"])
	}
	if eval := jsonEvents(t, whole, "eval")[0]; !(eval.number("held_out_bits_per_byte") < eval.number("held_out_loss")) {
		t.Errorf("a token is no more than a byte: %v", eval)
	}
	config, err := os.ReadFile("run/config.toml")
	if err != nil || !strings.Contains(string(config), "vocab = 320\n") {
		t.Errorf("the vocabulary of 300 tokens is not 320: %v\n%s", err, config)
	}
	want := files(t, ".")
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(own, own+".gone"); err != nil {
		t.Fatal(err)
	}
	succeed(t, args...) // the same command, given again, goes on
	same(t, files(t, "."), want)
	if err := os.RemoveAll("run/step-00000006"); err != nil {
		t.Fatal(err)
	}
	succeed(t, "train", "--resume", "--out", "run", "-np", "2", "--log-format", "json")
	same(t, files(t, "."), want)

	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--out", "run", "-np", "2", "--tokenizer", "bytes"}, "tokenizer is "+own, "not bytes", "cannot change")
	refuse(t, cli.ExitUsage, tiny(data, "--out", "other", "--tokenizer", own), own, "use bytes, tiktoken:")
	refuse(t, cli.ExitUsage, tiny(data, "--tokenizer", own+".gone", "--set", "model.vocab=256"), "model.vocab is 256", "has 300 tokens")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--tokenizer", own + ".gone", "--set", "model.vocab=256"}, "model.vocab is 256", "has 300 tokens")
	refuse(t, cli.ExitUsage, tiny(data, "--tokenizer", "tiktoken:none"), `no encoding "none"`)
}

// Special tokens that rows spell are letters or tokens, in training and in prompts alike, as the
// run was told or its token file was; runs that begin with its weights do the same.
func TestSpecialTokens(t *testing.T) {
	own, rows := trainedTokenizer(t, text(t)), filepath.Join(t.TempDir(), "rows.jsonl")
	write(t, rows, strings.Repeat(`{"text":"every rank sends the gradient to some expert<|endoftext|>"}`+"\n", 300))
	t.Chdir(t.TempDir())
	inspected := succeed(t, "data", "inspect", "--data", rows, "--tokenizer", own, "--special-tokens")
	made := succeed(t, "data", "tokenize", rows, "--tokenizer", own, "--special-tokens", "--out", "tokens.arrow")
	for _, out := range []string{inspected, made} {
		if !strings.Contains(out, "300 times <|endoftext|> in the text: taken as special tokens") {
			t.Errorf("it says %s", out)
		}
	}
	for run, c := range map[string]struct {
		args  []string
		said  string
		taken bool
	}{
		"letters": {[]string{"--data", rows, "--tokenizer", own}, "300 times <|endoftext|> in the text: encoded as letters; special_tokens takes", false},
		"taken":   {[]string{"--data", rows, "--tokenizer", own, "--set", "special_tokens=true"}, "300 times <|endoftext|> in the text: taken as special tokens", true},
		"file":    {[]string{"--data", "tokens.arrow"}, "", true},
	} {
		args := slices.Concat([]string{"train", "--report=false", "--out", run}, tinyRun(rows)[2:], c.args, jsonLog, []string{"--seq", "16"})
		if said := fmt.Sprint(jsonEvents(t, succeed(t, args...), "start")[0]["notes"]); !strings.Contains(said, c.said) {
			t.Errorf("%s: the notes are %s", run, said)
		}
		for _, from := range []string{run, run + "-next"} {
			got := launch("generate", "--checkpoint", from, "--prompt", "<|endoftext|>", "--max-tokens", "1", "--json")
			if prompt := jsonEvents(t, got.out, "text")[0]["prompt_tokens"]; (prompt == 1.0) != c.taken || strings.Contains(got.errOut, "encoded as letters") == c.taken {
				t.Errorf("%s: a prompt of one special token has %v tokens: %s", from, prompt, got.errOut)
			}
			if from == run {
				succeed(t, slices.Concat([]string{"train", "--report=false", "--init-from", run, "--out", run + "-next"}, tinyRun(rows)[:14], []string{"--seq", "16", "--steps", "1"})...)
			}
		}
	}
	refuse(t, cli.ExitUsage, []string{"train", "--set", "special_tokens=true", "--data", rows}, "special_tokens: tokenizer bytes has no special tokens")
	refuse(t, cli.ExitUsage, []string{"train", "--resume", "--set", "special_tokens=true", "--out", "letters"}, "special_tokens is false in letters/step-00000006, not true")
	refuse(t, cli.ExitUsage, []string{"train", "--tokenizer", own, "--data", "tokens.arrow"}, "add special_tokens or leave it out")
}
