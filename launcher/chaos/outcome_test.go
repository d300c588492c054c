//go:build linux

package chaos

import (
	"encoding/json"
	"strings"
	"testing"

	"spmoe/launcher/record"
)

// Whatever differs between two outcomes is told.
func TestDifferences(t *testing.T) {
	fresh := func() *outcome {
		return &outcome{
			record: record.Log{Steps: []record.Step{{Step: 1, Loss: 3}, {Step: 2, Loss: 2}}, Done: &record.Done{Step: 2}},
			state:  map[string]uint32{"step-2/rank-0": 7},
			rest:   json.RawMessage(`{"step":2}`),
			names:  []string{"config.toml", "step-2"},
		}
	}
	if d := fresh().differences(fresh()); d != nil {
		t.Errorf("equal outcomes differ: %q", d)
	}
	for want, change := range map[string]func(*outcome){
		"from step 2 on":                  func(o *outcome) { o.record.Steps[1].Loss = 2.5 },
		"1 steps are recorded":            func(o *outcome) { o.record.Steps = o.record.Steps[:1] },
		"3 steps are recorded":            func(o *outcome) { o.record.Steps = append(o.record.Steps, record.Step{Step: 2}) },
		"the record differs":              func(o *outcome) { o.record.Done.Skipped = 1 },
		"rank-0 differs":                  func(o *outcome) { o.state["step-2/rank-0"]++ },
		"expected 00000007":               func(o *outcome) { o.state = nil },
		`state is {"step":3}`:             func(o *outcome) { o.rest = json.RawMessage(`{"step":3}`) },
		".new-1 is left in its folder":    func(o *outcome) { o.names = append(o.names, ".new-1") },
		"2 more checkpoints, expected 0":  func(o *outcome) { o.others = 2 },
		"1 damaged checkpoints":           func(o *outcome) { o.aside = 1 },
		"step-2 is missing in its folder": func(o *outcome) { o.names = o.names[:1] },
	} {
		o := fresh()
		change(o)
		if d := strings.Join(o.differences(fresh()), "; "); !strings.Contains(d, want) {
			t.Errorf("the differences are %q, want %q in them", d, want)
		}
	}
}
