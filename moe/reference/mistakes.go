package reference

import (
	_ "embed"
	"slices"
	"strings"
)

// Mistake is a known fault of training programs, which Call.Mistake makes on purpose. The formulas
// ask for it by name.
type Mistake struct {
	Name  string
	Says  string // one sentence, for a verdict
	Kinds []Kind // of the modules that can have it
}

//go:embed mistakes.tsv
var mistakes string // lines of name, finest kind, sentence

// Mistakes returns all known mistakes.
func Mistakes() (all []Mistake) {
	for line := range strings.Lines(mistakes) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		all = append(all, Mistake{fields[0], fields[2], around(Kind(fields[1]))})
	}
	return all
}

// around returns a kind and those that contain it.
func around(finest Kind) []Kind {
	kinds := []Kind{finest}
	for _, inside := range [][2]Kind{
		{Rotary, Core}, {Core, Attention}, {Norm, Attention}, {Linear, Attention}, {Act, MLP}, {Act, Experts}, {Experts, MoE}, {MLP, MoE},
		{Router, MoE}, {Attention, Block}, {MLP, Block}, {MoE, Block}, {Residual, Block}, {Norm, Head}, {Loss, Head},
	} {
		if slices.Contains(kinds, inside[0]) && !slices.Contains(kinds, inside[1]) {
			kinds = append(kinds, inside[1])
		}
	}
	return kinds
}
