package main

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	candidates := []string{"steps", "seq", "seed", "save-every", "model.layers"}
	for word, want := range map[string]string{
		"stesp": "steps", "step": "steps", "see": "seed", "save-evry": "save-every", "models.layer": "model.layers", "xyz": "", "": "",
	} {
		if got := nearest(word, candidates); got != want {
			t.Errorf("nearest %q is %q, want %q", word, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("distance of %q and %q is %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	for args, want := range map[string][]string{
		"trian":                   {`"trian"`, "did you mean train?", "checkpoint"},
		"hlep":                    {"did you mean help?"},
		"help trian":              {"did you mean train?"},
		"chat":                    {"did you mean generate?"},
		"Infer --np 2":            {"did you mean generate?"},
		"pretrain":                {"did you mean train?"},
		"gemm":                    {"did you mean bench kernels?"},
		"bench all-to-all":        {"did you mean exchange?"},
		"bench exchang":           {"did you mean exchange?"},
		"ablate":                  {"did you mean compare?"},
		"help chat":               {"did you mean generate?"},
		"help bench gemm":         {"did you mean kernels?"},
		"frobnicate":              {`"frobnicate"`, "commands: train"},
		"checkpoint verfy x":      {`"verfy"`, "ls, verify, export", "did you mean verify?"},
		"bench kernel":            {"did you mean kernels?"},
		"train --precision mxpf8": {"--precision", `"mxpf8"`, "bf16", "did you mean mxfp8?"},
		"bench train --precision bf16,mxfp8-expert": {`"mxfp8-expert"`, "did you mean mxfp8-experts?"},
		"train --flavor 761B":                       {"671B"},
		"train --ep standart":                       {"did you mean standard?"},
		"train --mx.scale celi":                     {"did you mean ceil?"},
		"train --log-format=jsno":                   {"did you mean json?"},
		"--ranks proces train":                      {"did you mean process?"},
		strings.Repeat("x", 1000):                   {"unknown command"},
		"train --ep " + strings.Repeat("x", 1000):   {"onesided"},
	} {
		refuse(t, exitUsage, strings.Fields(args), want...)
	}
	if got := named(t, "completion").choices(); len(got) != 3 {
		t.Errorf("%q", got)
	}
	if got := named(t, "inspect").choices(); got != nil {
		t.Errorf("words that stand for others are taken for actions: %q", got)
	}
}

func named(t *testing.T, name string) command {
	t.Helper()
	c, ok := find(commands(), name)
	if !ok {
		t.Fatal(name)
	}
	return c
}

// Synonyms stand for commands that exist, and are not commands themselves.
func TestSynonyms(t *testing.T) {
	names := map[string]bool{}
	for _, parent := range commands() {
		for _, c := range parent.family() {
			names[c.name] = true
		}
	}
	for word, name := range synonyms() {
		if !names[name] || names[word] {
			t.Errorf("%q stands for %q", word, name)
		}
	}
}
