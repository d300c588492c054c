package cli

import (
	"flag"
	"testing"
)

// Words of other tools stand for words of this program, and are none themselves.
func TestSynonyms(t *testing.T) {
	own := flag.NewFlagSet("", flag.ContinueOnError)
	Bind(own, TrainDefaults)
	own = settable(own)
	own.Int("np", 1, "")
	own.Int("max-tokens", 1, "")
	for word, name := range flagSynonyms {
		if own.Lookup(name) == nil || own.Lookup(word) != nil || flagAdvice[word] != "" {
			t.Errorf("--%s stands for --%s", word, name)
		}
	}
	values := map[string]bool{}
	for _, name := range FlagNames(own) {
		for _, v := range FlagChoices("train", name) {
			values[v] = true
		}
	}
	for word, value := range valueSynonyms {
		if !values[value] || values[word] {
			t.Errorf("%q stands for %q", word, value)
		}
	}
}
