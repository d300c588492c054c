package state

import (
	"testing"

	"spmoe/datasets"
)

// Progress that contradicts itself or its checkpoint is refused.
func TestProgressIsChecked(t *testing.T) {
	good := Progress{Step: 2, OptimizerSteps: 1, Skipped: 1, SkippedSteps: []int{2}, Tokens: 96, Loader: datasets.State{Pos: 12, Seq: 8}}
	if err := good.check(2); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(p *Progress){
		"another step":             func(p *Progress) { p.Step = 3 },
		"more updates than steps":  func(p *Progress) { p.OptimizerSteps = 3 },
		"fewer updates than none":  func(p *Progress) { p.OptimizerSteps = -1 },
		"more skips than steps":    func(p *Progress) { p.Skipped = 1_000_000_000 },
		"fewer skips than none":    func(p *Progress) { p.Skipped, p.SkippedSteps = -1, nil },
		"skips without number":     func(p *Progress) { p.SkippedSteps = []int{1, 2} },
		"a skip after the last":    func(p *Progress) { p.SkippedSteps = []int{7} },
		"a skip twice":             func(p *Progress) { p.Skipped, p.SkippedSteps = 2, []int{1, 1} },
		"losses beyond the window": func(p *Progress) { p.Recent = make(Recent, recentSteps+1) },
		"norms beyond the window":  func(p *Progress) { p.Norms = make(Norms, normSteps+1) },
		"fewer tokens than none":   func(p *Progress) { p.Tokens = -8 },
		"part of a sample":         func(p *Progress) { p.Tokens = 97 },
		"tokens of other samples":  func(p *Progress) { p.Tokens = 1 << 62 },
		"samples without tokens":   func(p *Progress) { p.Loader.Seq = 0 },
	} {
		p := good.Clone()
		if change(&p); p.check(2) == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, step := range []int64{-1, 1, 3, 1 << 40} {
		if good.check(step) == nil {
			t.Errorf("the progress of step 2 is accepted in a checkpoint of step %d", step)
		}
	}
}
