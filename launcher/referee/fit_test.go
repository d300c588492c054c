package referee

import (
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/step"
)

const layer = "model.layers.1"

// planted returns a trial of a module of a golden step, whose outputs are those of a mistake.
func planted(t *testing.T, path, mistake string) (*judge, *trial, *ModuleLine) {
	folder, err := step.Open("../golden/testdata/deepseek_v3_tiny")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	j := &judge{folder: folder, report: &Report{}, known: map[string]bool{}}
	j.prepare()
	m := j.byPath[path]
	tr, err := j.open(m, j.repeats[0])
	if err != nil || tr == nil {
		t.Fatalf("%s: %v", path, err)
	}
	call := tr.call
	call.Mistake = mistake
	pass, err := m.Forward(call)
	if err != nil {
		t.Fatal(err)
	}
	tr.out[0].Data, tr.gradIn, tr.backward = pass.Out[0].Data, make([]*observed, len(tr.gradIn)), false
	line := &ModuleLine{Path: m.Path, Kind: string(m.Kind), Layer: m.Layer}
	if tr.exact, tr.floors, err = tr.compute(tr.call, tr.ways); err != nil {
		t.Fatal(err)
	}
	line.add(tr.judgeOutcome(tr.exact, tr.floors, nil))
	return j, tr, line
}

// The constant of a mistake, and the experts that are swapped, are found from the output alone.
func TestConstants(t *testing.T) {
	for mistake, path := range map[string]string{
		"scale_other:1.87": layer, "window_other:12": layer, "experts_swapped:3,5": layer + ".mlp",
	} {
		j, tr, line := planted(t, path, mistake)
		if len(line.wrong()) == 0 {
			t.Errorf("%s is not seen", mistake)
			continue
		}
		causes := j.explain(tr, line)
		if !slices.ContainsFunc(causes[:min(1, len(causes))], func(c Cause) bool {
			return c.Name == mistake || c.Name == strings.Replace(mistake, "3,5", "5,3", 1)
		}) {
			t.Errorf("%s: %+v", mistake, causes)
		}
	}
}

// What no mistake explains has no cause, though constants are fitted.
func TestNoCause(t *testing.T) {
	j, tr, line := planted(t, layer, "")
	if len(line.wrong()) > 0 {
		t.Error("it is wrong without a mistake")
	}
	for i := range tr.out[0].Data[:640] {
		tr.out[0].Data[i] *= 1 + 0.3*float64(i%3)
	}
	line = &ModuleLine{Path: line.Path, Kind: line.Kind, Layer: line.Layer}
	line.add(tr.judgeOutcome(tr.exact, tr.floors, nil))
	if causes := j.explain(tr, line); len(line.wrong()) == 0 || len(causes) > 0 {
		t.Errorf("%d wrong, %+v", len(line.wrong()), causes)
	}
}
