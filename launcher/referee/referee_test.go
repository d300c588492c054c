package referee

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// Tests make much garbage in a small heap, as Judge does.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1600)
	os.Exit(m.Run())
}

// noisy returns x with relative noise of a size per element.
func noisy(rng *rand.Rand, x []float64, size float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * (1 + size*rng.NormFloat64())
	}
	return y
}

// pairOf returns a tensor of 64 rows of 64 with noise, and floors of the same noise.
func pairOf(rng *rand.Rand) tensorPair {
	want := make([]float64, 64*64)
	for i := range want {
		want[i] = rng.NormFloat64()
	}
	p := tensorPair{got: noisy(rng, want, 4e-3), want: want, rows: 64, least: 1e-4}
	for range 3 {
		p.floors = append(p.floors, noisy(rng, want, 4e-3))
	}
	return p
}

// Equal noise is right, far below the thresholds. What is wrong is found by the statistic for it.
func TestComparisons(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *tensorPair)
		wrong  string // statistic; "": right
		whole  bool   // the gradient of a weight is wrong
	}{
		"equal noise":    {func(p *tensorPair) {}, "", false},
		"three times it": {func(p *tensorPair) { p.got = noisy(rand.New(rand.NewPCG(9, 9)), p.want, 12e-3) }, "median", true},
		"one row":        {func(p *tensorPair) { p.got[64*5+3] += 2 }, "worst", true},
		"a bias":         {func(p *tensorPair) { scaled(p.got, 1.004) }, "factor", false},
		"a factor":       {func(p *tensorPair) { scaled(p.got, 2) }, "median", true},
		"zeros":          {func(p *tensorPair) { scaled(p.got, 0) }, "median", true},
		"a row of nothing": {func(p *tensorPair) {
			for _, x := range append([][]float64{p.want}, p.floors...) {
				scaled(x[64*5:64*6], 1e-6)
			}
			scaled(p.got[64*5:64*6], 1e-4)
		}, "", false},
		"a NaN":           {func(p *tensorPair) { p.got[70] = math.NaN() }, "worst", true},
		"nothing at all":  {func(p *tensorPair) { scaled(p.got, 0); scaled(p.want, 0); p.floors = nil }, "", false},
		"out of a zero":   {func(p *tensorPair) { scaled(p.want, 0); p.floors = nil }, "median", true},
		"a small channel": {func(p *tensorPair) { outlier(p, 1e3); p.got[64*7+5] += 3 }, "worst", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := pairOf(rand.New(rand.NewPCG(8, 1)))
			c.change(&p)
			rows := p.compareRows("output", "x")
			if rows.Wrong() != (c.wrong != "") || rows.Wrong() && rows.Statistic != c.wrong || !rows.Wrong() && rows.Strain >= 0.5 {
				t.Errorf("by row: %s of strain %.3g, want %q", rows.Statistic, rows.Strain, c.wrong)
			}
			whole := p.compareWhole("gradient", "w")
			if name == "a small channel" { // judged by row alone
				return
			}
			if whole.Wrong() != c.whole {
				t.Errorf("as a whole: %s of strain %.3g, want wrong %v", whole.Statistic, whole.Strain, c.whole)
			}
			if want := map[string]float64{"a factor": 2, "zeros": 0}; whole.Scaled {
				if f, ok := want[name]; !ok || math.Abs(whole.Factor-f) > 1e-3 {
					t.Errorf("scaled by %g", whole.Factor)
				}
			}
		})
	}
}

// What storing the parts of a sum adds is part of the floor.
func TestFloorOfParts(t *testing.T) {
	p := pairOf(rand.New(rand.NewPCG(8, 1)))
	alone := p.compareWhole("gradient", "w").Floor
	p.summed = 3 * alone
	if got := p.compareWhole("gradient", "w").Floor; math.Abs(got/alone-math.Sqrt(10)) > 1e-6 {
		t.Errorf("the floor grows from %g to %g", alone, got)
	}
}

func scaled(x []float64, by float64) {
	for i := range x {
		x[i] *= by
	}
}

// outlier makes channel 9 so much larger.
func outlier(p *tensorPair, by float64) {
	for _, x := range append([][]float64{p.got, p.want}, p.floors...) {
		for r := range 64 {
			x[r*64+9] *= by
		}
	}
}

// A choice is right if rounding could have made it. With groups, these are judged first.
func TestRegret(t *testing.T) {
	scores := []float64{.9, .8, .3, .2, .7, .1, .65, .6} // two groups of four
	tensor := func(x []float64) reference.Tensor { return reference.Tensor{Dims: []int{1, len(x)}, Data: x} }
	for name, c := range map[string]struct {
		groups []float64
		picks  []float64
		wrong  bool
	}{
		"the best":                    {nil, []float64{0, 1}, false},
		"the order is of no account":  {nil, []float64{1, 0}, false},
		"the third":                   {nil, []float64{0, 4}, true},
		"one twice":                   {nil, []float64{0, 0}, true},
		"none of the experts":         {nil, []float64{0, 8}, true},
		"the best of the other group": {[]float64{1.7, 1.35}, []float64{4, 6}, true},
		"the best of the best group":  {[]float64{1.2, 1.35}, []float64{4, 6}, false},
		"more groups than allowed":    {[]float64{1.7, 1.7}, []float64{0, 1, 4}, true},
		"a group within rounding":     {[]float64{1.7, 1.6999}, []float64{4, 6}, false},
	} {
		m := &reference.Module{Path: "gate", Kind: reference.Router}
		j := &judge{folder: &step.Folder{Model: &reference.Config{TopKGroups: 1}}}
		picks := tensor(c.picks)
		tr := &trial{judge: j, module: m, tokens: 1, call: reference.Call{Batch: &reference.Batch{}, Given: known(outcome{"gate.indices": picks})}}
		exact := outcome{"gate.choice": tensor(scores)}
		floor := outcome{"gate.choice": tensor(noisy(rand.New(rand.NewPCG(1, 2)), scores, 1e-4))}
		if c.groups != nil {
			exact["gate.groups"], floor["gate.groups"] = tensor(c.groups), tensor(noisy(rand.New(rand.NewPCG(3, 4)), c.groups, 1e-4))
		}
		if got, ok := tr.regret(exact, []outcome{floor}, nil); !ok || got.Wrong() != c.wrong {
			t.Errorf("%s: %+v, want wrong %v", name, got, c.wrong)
		}
	}
}

// A gradient that is not the sum of its parts is told apart into them.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	parts := []part{{name: "dp rank 0", axis: "dp"}, {name: "dp rank 1", axis: "dp"}}
	for i := range parts {
		for range 100 {
			parts[i].values = append(parts[i].values, rng.NormFloat64())
		}
	}
	for _, c := range []struct {
		a, b float64
		want string
	}{
		{1, 0, "the gradient of dp rank 0 alone: the sum over dp was not done"}, {2, 1, "dp rank 0 × 2 + dp rank 1"},
		{0.5, 0, "dp rank 0 × 1/2, without dp rank 1"}, {1, 1, ""}, {0.5, 0.5, ""},
	} {
		y := make([]float64, 100)
		for i := range y {
			y[i] = c.a*parts[0].values[i] + c.b*parts[1].values[i]
		}
		got := describeParts(y, parts, Comparison{Floor: 1e-9}, 1e-9)
		if got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%g, %g: %q, want %q", c.a, c.b, got, c.want)
		}
	}
	for x, want := range map[float64]string{2.0004: "2", 0.125: "1/8", -1: "-1", 0: "0", 1.27345: "1.273", 1024.3: "1024", 0.0371: "0.0371"} {
		if got := factorText(x); got != want {
			t.Errorf("%g is %q, want %q", x, got, want)
		}
	}
}

// TestGoldens: a right step of each family is right, with room below the thresholds.
func TestGoldens(t *testing.T) {
	for _, name := range []string{"deepseek_v3_tiny", "qwen3_moe_tiny", "glm_moe_dsa_tiny", "deepseek_v4_tiny"} {
		report := judged(t, "../golden/testdata/"+name)
		for statistic, strain := range report.Strains {
			if strain >= 0.5 {
				t.Errorf("%s: %s is at %.2f of its threshold", name, statistic, strain)
			}
		}
		if report.Verdict != Right || report.Compared < 50 {
			t.Errorf("%s: %s, %d compared, %v", name, report.Verdict, report.Compared, report.Doubts)
		}
	}
}

// written returns a folder of the reference's own activations and gradients of 32 tokens. auxiliary
// is that of step.json.
func written(t *testing.T, family, auxiliary string) (dir string) {
	golden, err := filepath.Abs("../golden/testdata/" + family)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	config, err := os.ReadFile(filepath.Join(golden, "config.json"))
	recorded, opened := safetensors.Open(filepath.Join(golden, "activations.safetensors"))
	if err := errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	defer recorded.Close()
	var batch []safetensors.Tensor
	for name, as := range map[string]string{"input_ids": "input_ids", "target_ids": "labels"} {
		info, _ := recorded.Info(name)
		data, err := recorded.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		batch = append(batch, safetensors.Tensor{Name: as, DType: info.DType, Shape: []int{1, 32}, Data: data[:4*32]})
	}
	facts := fmt.Sprintf(`{"format": "step-1", "labels_shifted": true, "weights": %q, "auxiliary": [%s]}`, golden, auxiliary)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644), os.WriteFile(filepath.Join(dir, "step.json"), []byte(facts), 0o644),
		safetensors.Write(filepath.Join(dir, "batch.safetensors"), batch, nil), Write(dir, dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// judged returns the report of a folder, without mistakes that rounding hides.
func judged(t *testing.T, dir string) *Report { return judgedWith(t, dir, true) }

func judgedWith(t *testing.T, dir string, brief bool) *Report {
	folder, err := step.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := folder.Usable(true); err != nil {
		t.Fatal(err)
	}
	j := newJudge(folder)
	j.brief = brief
	return j.all(false)
}

// TestWrite: a folder of the reference's own activations and gradients is right.
func TestWrite(t *testing.T) {
	dir := written(t, "deepseek_v3_tiny", "")
	r := judged(t, dir)
	ofLoss := func(l *ModuleLine) bool { return l.Path == "loss" && l.worst("grad_input") != nil }
	if r.Verdict != Right || r.Compared < 350 || !slices.ContainsFunc(r.Modules, ofLoss) {
		t.Errorf("%s, %d compared, %v, %+v", r.Verdict, r.Compared, r.Doubts, r.Findings)
	}
}

// planted returns a trial of a module of a step, whose outputs are those of a mistake.
func planted(t *testing.T, dir, path, mistake string) (*judge, *trial, *ModuleLine) {
	folder, err := step.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	j := newJudge(folder)
	m := j.byPath[path]
	tr, err := j.open(m, j.repeats[0])
	if err != nil || tr == nil {
		t.Fatalf("%s: %v", path, err)
	}
	call := tr.call
	call.Mistake = mistake
	tr.backward = false
	o, err := tr.run(call)
	if err != nil {
		t.Fatal(err)
	}
	tr.held[m.Outputs[0].Name].Data = o[m.Outputs[0].Name].Data
	line := &ModuleLine{Path: m.Path, Kind: string(m.Kind), Layer: m.Layer}
	if tr.exact, tr.floors, err = tr.compute(tr.call, tr.ways); err != nil {
		t.Fatal(err)
	}
	line.add(tr.compareAll(tr.exact, tr.floors, nil))
	return j, tr, line
}

// The constant of a mistake, and the experts that are swapped, are found from the output alone.
// What no mistake explains has no cause, though constants are fitted.
func TestCauses(t *testing.T) {
	const layer = "model.layers.1"
	dir := written(t, "deepseek_v3_tiny", "")
	for mistake, path := range map[string]string{"scale_other:1.87": layer + ".self_attn", "window_other:12": layer + ".self_attn.core", "experts_swapped:3,5": layer + ".mlp", "": layer + ".mlp"} {
		j, tr, line := planted(t, dir, path, mistake)
		if mistake == "" {
			if len(line.wrong()) > 0 {
				t.Error("it is wrong without a mistake")
			}
			for i, out := 0, tr.held[path+".output"].Data; i < 640; i++ {
				out[i] *= 1 + 0.3*float64(i%3)
			}
			line.Comparisons = tr.compareAll(tr.exact, tr.floors, nil)
		}
		if len(line.wrong()) == 0 {
			t.Errorf("%q is not seen", mistake)
			continue
		}
		causes := j.explain(tr, line)
		named := slices.ContainsFunc(causes[:min(1, len(causes))], func(c Cause) bool {
			var x float64
			fmt.Sscanf(c.Name, "scale_other:%g", &x)
			return c.Name == mistake || math.Abs(x/1.87-1) < 1e-6 || c.Name == strings.Replace(mistake, "3,5", "5,3", 1)
		})
		if named != (mistake != "") || mistake == "" && len(causes) > 0 {
			t.Errorf("%q: %+v", mistake, causes)
		}
	}
}

// known returns a lookup of tensors by name for Call.Given.
func known(tensors map[string]reference.Tensor) func(name string) (reference.Tensor, bool) {
	return func(name string) (reference.Tensor, bool) {
		x, ok := tensors[name]
		return x, ok
	}
}
