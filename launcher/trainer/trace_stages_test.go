package trainer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"spmoe/collective/mesh"
	"spmoe/collective/pipeline"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/observe"
)

// A trace has a row for each stage of a pipeline, with the actions of the schedule in its order.
// Waiting for messages is in the rows of ranks, and in the profile.
func TestTraceOfStages(t *testing.T) {
	const ranks, step = 2, 2
	cfg := inStages(pipelineRun(t, "bf16"), "DualPipeV", mesh.Layout{World: ranks, PP: ranks, DPReplicate: 1, DPShard: 1, EP: 1})
	r := &reports{}
	job, err := Prepare(cfg, ranks, "", r)
	if err != nil {
		t.Fatal(err)
	}
	job.Profile, job.Trace = true, observe.Window{First: step, Last: step}
	if err := job.Run(t.Context(), spmd.Goroutines{N: ranks}); err != nil {
		t.Fatal(err)
	}
	rows, names := readTrace(t, cfg.Out)
	actions, waits := make([][]traced, ranks), time.Duration(0)
	begins := map[string]float64{}
	for i, name := range names {
		var stage, rank int
		if _, err := fmt.Sscanf(name, "stage %d, rank %d", &stage, &rank); err != nil {
			for _, e := range rows[i] {
				if e.Name == "waiting in message" {
					waits += time.Duration(1e3 * e.Duration)
				}
			}
			continue
		}
		for _, e := range rows[i] {
			begins[fmt.Sprint(stage, " ", strings.TrimSuffix(e.Name, " in a pair"))] = e.Time
			e.Name = fmt.Sprint(stage, e.Name)
			actions[rank] = append(actions[rank], e)
		}
	}
	s, err := pipeline.New("DualPipeV", ranks, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	for rank, list := range actions {
		slices.SortFunc(list, func(a, b traced) int { return cmp.Compare(a.Time, b.Time) })
		var got []string
		for _, e := range list {
			got = append(got, e.Name)
		}
		if want := namesOf(s.Ranks[rank]); !slices.Equal(got, want) {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
	for stage := 1; stage < s.Stages; stage++ {
		if from, to := begins[fmt.Sprint(stage-1, " F 3")], begins[fmt.Sprint(stage, " F 3")]; from >= to {
			t.Errorf("micro-batch 3 is at stage %d at %v and at the next one at %v", stage-1, from, to)
		}
	}
	messages := time.Duration(0) // of the same step: the first one is not in the profile
	for _, f := range r.prof[0].Families {
		if f.Name == "messages" {
			messages = f.Ranks[0] + f.Ranks[1]
		}
	}
	if waits == 0 || messages < waits*99/100 {
		t.Errorf("%v of messages in the profile, %v of waiting for them in the trace", messages, waits)
	}
}

// namesOf lists the actions of a rank as a trace names them, after their stage.
func namesOf(list []pipeline.Slot) (names []string) {
	for _, slot := range list {
		for _, a := range slot {
			name := fmt.Sprintf("%d%v %d", a.Stage, a.Kind, a.Microbatch)
			if len(slot) > 1 {
				name += " in a pair"
			}
			names = append(names, name)
		}
	}
	return names
}
