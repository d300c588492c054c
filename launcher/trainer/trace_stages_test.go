package trainer

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/launcher/trainer/observe"
)

// A trace has a row for the pipeline of each rank, with the actions of the schedule in its order.
func TestTraceOfStages(t *testing.T) {
	const ranks, step = 2, 2
	cfg := inStages(pipelineRun(t, "bf16"), "DualPipeV", mesh.Layout{World: ranks, PP: ranks, DPReplicate: 1, DPShard: 1, EP: 1})
	traceRun(t, cfg, observe.Window{First: step, Last: step})
	rows, _ := readTrace(t, cfg.Out)
	s, err := pipeline.New("DualPipeV", ranks, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		var got []string
		for _, e := range rows[2*rank+1] {
			got = append(got, e.Name+e.Category)
		}
		if want := namesOf(s.Ranks[rank]); !slices.Equal(got, want) {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}

// namesOf lists the actions of a rank as a trace names them.
func namesOf(list []pipeline.Slot) (names []string) {
	for _, slot := range list {
		for _, a := range slot {
			name := fmt.Sprintf("%v %d, stage %d", a.Kind, a.Microbatch, a.Stage)
			if len(slot) > 1 {
				name += "paired"
			}
			names = append(names, name)
		}
	}
	return names
}
