package generate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBeginning(t *testing.T) {
	for text, want := range map[string]string{
		`{"add_bos_token": true, "bos_token": "<s>"}`:                                            "<s>",
		`{"add_bos_token": true, "bos_token": {"__type": "AddedToken", "content": "<|begin|>"}}`: "<|begin|>",
		`{"add_bos_token": false, "bos_token": "<s>"}`:                                           "",
		`{"bos_token": "<s>", "model_max_length": 16384}`:                                        "",
		`{"add_bos_token": true, "bos_token": null}`:                                             "error: bos_token",
		`{"add_bos_token": true, "bos_token": 7}`:                                                "error: bos_token",
		`{"add_bos_token": true}`:                                                                "error: bos_token",
		`{"add_bos_token": "yes"}`:                                                               "error: offset",
		`{"add_bos_token": true, `:                                                               "error: offset",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, tokenizerConfig), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := Beginning(dir)
		message, fails := strings.CutPrefix(want, "error: ")
		if fails != (err != nil) || !fails && got != want || fails && (!strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), tokenizerConfig)) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := Beginning(t.TempDir()); got != "" || err != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
}
