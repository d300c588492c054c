package estimate

// What is possible, but probably not meant: a run says it before its first step.

import (
	"fmt"

	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
)

// Notices describes what is odd about a configuration with a tokenizer.
func Notices(c config.Config, t datasets.Tokenizer) (all []string) {
	tokens := t.VocabSize()
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if vocab := c.Model.Vocab; tokens < vocab/2 {
		advice := "leave model.vocab out"
		if c.Tokenizer == (datasets.Bytes{}).Name() {
			advice = fmt.Sprintf("make one with launcher data train-tokenizer --vocab %d --out tokenizer.json, and pass it with --tokenizer", vocab)
		}
		add("tokenizer %s uses %d of the vocabulary's %d rows (%.2g %%); the others learn nothing: %s", c.Tokenizer, tokens, vocab, 100*float64(tokens)/float64(vocab), advice)
	}
	if end := datasets.EndOf(t); end.From == "" && t.Name() != (datasets.Bytes{}).Name() {
		add("tokenizer %s names no token that ends documents, so the byte NUL (%d) stands between them: name one with end_token", c.Tokenizer, end.ID)
	}
	if steps := c.PlannedSteps(); c.Optimizer.Warmup > steps {
		add("optimizer.warmup is %d, but the learning rate is planned for %d steps: it rises until the last one, without a constant part or a decay", c.Optimizer.Warmup, steps)
	}
	return all
}

// LayoutNotices describes results whose bits depend on the layout.
func LayoutNotices(c config.Config, ranks int) (all []string) {
	one := c
	one.SetLayout(mesh.Default(1))
	precision, _ := c.Recipe() // it was checked
	if n, alone := c.Passes(ranks), one.Passes(1); n != alone && (precision.DependsOnPasses() || c.EPCapacity > 0) {
		all = append(all, fmt.Sprintf("a step has %d passes in this layout, and %d on one rank with the same settings: results of %s depend on that number, so their bits are not those of one rank", n, alone, precision.Name))
	}
	if n := precision.TokenBlock(); c.Seq%n != 0 {
		all = append(all, fmt.Sprintf("%s has blocks of %d tokens, and a sequence has %d: another number of ranks cuts blocks in other places, so results have other bits: give a --seq that is a multiple of %d", precision.Name, n, c.Seq, n))
	}
	return all
}

// TextNotices describes text in which special tokens are spelled.
func TextNotices(d *datasets.Data, t datasets.Tokenizer) (all []string) {
	if note := datasets.SpecialNote(t, d.Special); note != "" {
		all = append(all, note)
	}
	return all
}
