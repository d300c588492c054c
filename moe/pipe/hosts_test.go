package pipe

// Pipelines over several hosts, whose ranks only exchange messages.

import (
	"fmt"
	"testing"

	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/tensor"
)

// The bits are those of one rank, wherever hosts cut the pipeline: between stages, and between the
// ranks of a stage.
func TestHosts(t *testing.T) {
	const microbatches, dp = 4, 2
	s := setup{cfg: config(1), precision: moe.Unquantized(tensor.BF16), dp: dp, ep: dp}
	s.cfg.Layers = 4
	all := newText(microbatches*dp, s.cfg.Vocab)
	want := alone(t, s.cfg, s.precision, all, microbatches)
	for _, name := range []string{"1F1B", "DualPipeV"} {
		var err error
		if s.schedule, err = pipeline.New(name, 2, 0, microbatches); err != nil {
			t.Fatal(err)
		}
		for _, s.hosts = range [][]int{{2, 2}, {1, 1, 1, 1}, {1, 3}} {
			for _, s.overlap = range []bool{false, true} {
				s.run(t, all).equals(t, fmt.Sprintf("%s on hosts of %v ranks, overlap %v", name, s.hosts, s.overlap), want)
			}
		}
	}
}
