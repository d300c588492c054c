package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/cli"
)

// jsonl writes rows of text under a field's name and returns the path.
func jsonl(t *testing.T, name, field string) string {
	t.Helper()
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "{%q:\"row %d of a set, with a text of some length\"}\n", field, i%390)
	}
	return write(t, filepath.Join(t.TempDir(), name), b.String())
}

// A token file is made that train reads.
func TestDataTokenize(t *testing.T) {
	rows := jsonl(t, "rows.jsonl", "body")
	t.Chdir(t.TempDir())
	got := succeed(t, "data", "tokenize", "--data", rows, "--data-field", "body", "--out", "tokens.arrow")
	if !strings.Contains(got, "tokens.arrow: ") || !strings.Contains(got, " documents, validation ") || !strings.Contains(got, "0.98 bytes/token") {
		t.Errorf("the output is %q", got)
	}
	succeed(t, tiny("tokens.arrow", "--out", "run", "--set", "document_mask=true")...)
	config, err := os.ReadFile("run/step-00000006/config.toml")
	if err != nil || !strings.Contains(string(config), "document_mask = true") || !strings.Contains(string(config), "data_field = 'text'") {
		t.Errorf("the configuration is %s, %v", config, err)
	}
	refuse(t, cli.ExitUsage, []string{"data", "tokenize", "tokens.arrow", "--out", "x"}, "holds tokens already")
	refuse(t, cli.ExitInterrupted, []string{"data", "tokenize", rows, "--data-field", "body", "--out", "x"})
	if _, err := os.Lstat("x"); err == nil {
		t.Error("an interrupted command leaves a file")
	}
}

// A token file contains its tokenizer. Another tokenizer is refused, with the names of both files.
func TestTokenFileTokenizer(t *testing.T) {
	data := text(t)
	own, folder := trainedTokenizer(t, data), t.TempDir()
	tokens, named := filepath.Join(folder, "corpus.arrow"), filepath.Join(folder, "named.arrow")
	for path, tokenizer := range map[string]string{tokens: own, named: "tiktoken:r50k_base"} {
		succeed(t, "data", "tokenize", "--data", data, "--tokenizer", tokenizer, "--out", path)
	}
	t.Chdir(t.TempDir())
	succeed(t, tiny(data, "--tokenizer", own, "--out", "text")...)
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	succeed(t, tiny(tokens, "--out", "run")...)
	a, b := files(t, "text"), files(t, "run")
	for _, name := range []string{"tokenizer.json", "step-00000006/rank-00000-of-00001.safetensors"} {
		if a[name] == "" || a[name] != b[name] {
			t.Errorf("%s of the token file differs from that of the text", name)
		}
	}
	if cfg := b["config.toml"]; !strings.Contains(cfg, "tokenizer = '"+tokens+"'") || !strings.Contains(cfg, "vocab = 320\n") {
		t.Errorf("the configuration is\n%s", cfg)
	}
	if cfg := resolved(t, "--data", named); cfg.Tokenizer != "tiktoken:r50k_base" {
		t.Errorf("tokenizer %q", cfg.Tokenizer)
	}
	refuse(t, cli.ExitUsage, tiny(tokens, "--tokenizer", "bytes"), tokens, "another tokenizer than bytes", "leave --tokenizer out")
	refuse(t, cli.ExitUsage, []string{"train", "--dry-run", "--data", named + "@1", tokens + "@1"}, tokens, "another tokenizer than tiktoken:r50k_base")
}

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

// The same text gives the same tokenizer. A run takes its vocabulary from it, and does without the
// file that it was given from then on.
func TestTokenizerOfRun(t *testing.T) {
	data := text(t)
	own, twin := trainedTokenizer(t, data), trainedTokenizer(t, data)
	same(t, files(t, filepath.Dir(twin)), files(t, filepath.Dir(own)))
	if tok, err := datasets.OpenTokenizer(own); err != nil || len(tok.Encode([]byte(" the rank"))) > 6 {
		t.Errorf("words of the text take many tokens: %v", err)
	}
	write(t, filepath.Join(filepath.Dir(own), "tokenizer_config.json"), `{"eos_token": "<|endoftext|>"}`)
	t.Chdir(t.TempDir())
	got := launch("data", "train-tokenizer", filepath.Join(data, "0.txt"), "--vocab", "100000", "--out", "large.json")
	if got.code != cli.ExitOK || !strings.Contains(got.errOut, "warning: only ") {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}

	args := tiny(data, append(jsonLog, "-np", "2", "--out", "run", "--save-every", "2", "--tokenizer", own)...)
	whole := succeed(t, args...)
	if start := jsonEvents(t, whole, "start")[0]; start["tokenizer"] != own+", 300 tokens; documents end with <|endoftext|> (0), eos_token of tokenizer_config.json" {
		t.Errorf("the log says %v", start["tokenizer"])
	}
	if eval := jsonEvents(t, whole, "eval")[0]; !(eval.number("held_out_bits_per_byte") < eval.number("held_out_loss")) {
		t.Errorf("a token is no more than a byte: %v", eval)
	}
	want := files(t, ".")
	if !strings.Contains(want["run/config.toml"], "vocab = 320\n") {
		t.Errorf("the vocabulary of 300 tokens is not 320:\n%s", want["run/config.toml"])
	}
	if err := errors.Join(os.RemoveAll("run/step-00000006"), os.Remove(own)); err != nil {
		t.Fatal(err)
	}
	succeed(t, args...) // the same command, given again, goes on
	same(t, files(t, "."), want)
}

// Special tokens that rows spell are letters or tokens, in training and in prompts alike, as the
// run was told or its token file was; runs that begin with its weights do the same.
func TestSpecialTokens(t *testing.T) {
	own, rows := trainedTokenizer(t, text(t)), filepath.Join(t.TempDir(), "rows.jsonl")
	write(t, rows, strings.Repeat(`{"text":"every rank sends the gradient to some expert<|endoftext|>"}`+"\n", 300))
	t.Chdir(t.TempDir())
	const letters, taken = "300 times <|endoftext|> in the text: encoded as letters; special_tokens takes", "300 times <|endoftext|> in the text: taken as special tokens"
	made := succeed(t, "data", "tokenize", rows, "--tokenizer", own, "--special-tokens", "--out", "tokens.arrow")
	if !strings.Contains(made, taken) {
		t.Errorf("it says %s", made)
	}
	for run, c := range map[string]struct {
		args  []string
		said  string
		taken bool
	}{
		"letters": {[]string{"--data", rows, "--tokenizer", own}, letters, false},
		"taken":   {[]string{"--data", rows, "--tokenizer", own, "--set", "special_tokens=true"}, taken, true},
		"file":    {[]string{"--data", "tokens.arrow"}, "", true},
	} {
		args := slices.Concat([]string{"train", "--report=false", "--out", run}, tinyRun(rows)[2:], c.args, jsonLog, []string{"--seq", "16"})
		if said := fmt.Sprint(jsonEvents(t, succeed(t, args...), "start")[0]["notes"]); !strings.Contains(said, c.said) {
			t.Errorf("%s: the notes are %s", run, said)
		}
		succeed(t, slices.Concat([]string{"train", "--report=false", "--init-from", run, "--out", run + "-next"}, tinyRun(rows)[:14], []string{"--seq", "16", "--steps", "1"})...)
		for _, from := range []string{run, run + "-next"} {
			got := launch("generate", "--checkpoint", from, "--prompt", "<|endoftext|>", "--max-tokens", "1", "--json")
			if prompt := jsonEvents(t, got.out, "text")[0]["prompt_tokens"]; (prompt == 1.0) != c.taken || strings.Contains(got.errOut, "encoded as letters") == c.taken {
				t.Errorf("%s: a prompt of one special token has %v tokens: %s", from, prompt, got.errOut)
			}
		}
	}
	refuse(t, cli.ExitUsage, []string{"train", "--tokenizer", own, "--data", "tokens.arrow"}, "add special_tokens or leave it out")
}
