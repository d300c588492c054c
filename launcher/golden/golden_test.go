// Package golden compares the layers that train with runs of transformers, in testdata: one batch
// with its activations and gradients, and steps of AdamW. It has tests only.
package golden

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/spmd"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/reference"
	"spmoe/tensor"
)

// The bounds are some five times what this build is off by, in FP32 against FP32.
const (
	activationBound = 6e-6 // |x - ref| / (1 + 5 |ref|)
	lossBound       = 5e-6
	gradientBound   = 1e-5 // relative L2
	normBound       = 5e-5 // relative
)

func file(t *testing.T, parts ...string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(append([]string{"testdata"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func ints(t *testing.T, f *safetensors.File, name string) ([]int32, []int) {
	t.Helper()
	data, err := f.Bytes(name)
	info, _ := f.Info(name)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]int32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, x); err != nil {
		t.Fatal(err)
	}
	return x, info.Shape
}

// rank is one rank's FP32 model with the golden weights.
type rank struct {
	comm  *collective.Comm
	ex    *tensor.Exec
	model *moe.Model
	optim *optim.Optimizer
}

// run calls body on each of n ranks. batch sequences are shared out: a rank has [lo, hi).
func run(t *testing.T, folder string, n, batch, seq int, rule optim.Rule, clip float64, body func(r *rank, lo, hi int) error) {
	t.Helper()
	source, err := weights.Open(filepath.Join("testdata", folder))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	cfg := source.Config()
	// The reference's selection bias is fixed, its loss is cross-entropy, and its indexers do not
	// train.
	cfg.BiasSpeed, cfg.BalanceAlpha, cfg.IndexWeight = 0, 0, 0
	err = spmd.Goroutines{N: n}.Run(func(c *collective.Comm) error {
		r := &rank{comm: c, ex: tensor.NewExec()}
		var err error
		if r.model, err = moe.New(cfg, moe.Unquantized(tensor.FP32), seq, c, nil); err != nil {
			return err
		}
		r.optim = optim.New(r.ex, r.model.Groups, c, rule)
		r.optim.ClipNorm = clip
		if err := source.Init(r.ex, r.optim, r.model.Routings(), 0); err != nil {
			return err
		}
		return body(r, batch*c.Rank()/n, batch*(c.Rank()+1)/n)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBatch compares activations, choices, the loss and every gradient of one batch.
func TestBatch(t *testing.T) {
	for _, folder := range []string{"deepseek_v3_tiny", "deepseek_v2lite_like", "deepseek_v32_tiny", "qwen3_moe_tiny", "glm4_moe_tiny", "glm_moe_dsa_tiny", "deepseek_v4_tiny"} {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/np%d", folder, n), func(t *testing.T) { testBatch(t, folder, n) })
		}
	}
}

func testBatch(t *testing.T, folder string, n int) {
	activations, gradient := file(t, folder, "activations.safetensors"), gradientsOf(t, folder)
	inputs, shape := ints(t, activations, "input_ids")
	targets, _ := ints(t, activations, "target_ids")
	batch, seq := shape[0], shape[1]
	var mu sync.Mutex
	compared := map[string]int{}
	run(t, folder, n, batch, seq, optim.AdamW{}, 0, func(r *rank, lo, hi int) error {
		lo, hi = lo*seq, hi*seq
		r.model.Observe(func(name string, x tensor.Tensor) {
			mu.Lock()
			defer mu.Unlock()
			if compareActivation(t, activations, name, x, lo, len(inputs)) {
				compared[name]++
			}
		})
		loss, err := r.model.Train(r.ex, moe.Batch{Inputs: inputs[lo:hi], Targets: targets[lo:hi], Seq: seq, GlobalSequences: batch})
		if err != nil {
			return err
		}
		r.model.Observe(nil)
		total := [1]float64{loss.Sum}
		if err := collective.AllReduce(r.comm, total[:], collective.Sum); err != nil {
			return err
		}
		if want, err := activations.Float32s("loss"); err != nil || math.Abs(total[0]/float64(len(inputs))-float64(want[0])) > lossBound {
			t.Errorf("loss %.8g, want %v (%v)", total[0]/float64(len(inputs)), want, err)
		}
		for _, g := range r.model.Groups {
			if g.Ranks != nil && !g.Shared {
				if err := collective.AllReduce(r.comm, g.Grad.F32(), collective.Sum); err != nil {
					return err
				}
			}
			for _, p := range g.Params {
				want, err := gradient(p)
				if err != nil {
					return err
				}
				if off := distance(p.Grad.F32(), want); !(off <= gradientBound) {
					t.Errorf("gradient of %s: relative L2 %.3g, bound %.0e", p.Name, off, gradientBound)
				}
				mu.Lock()
				compared["gradient"]++
				mu.Unlock()
			}
		}
		return nil
	})
	for _, must := range []string{"layer0_attention", "layer1_topk_index", "layer1_topk_weight", "layer1_out", "gradient"} {
		if compared[must] < n {
			t.Errorf("%s was compared on %d of %d ranks", must, compared[must], n)
		}
	}
}

// gradientsOf returns the reference's gradients. DeepSeek-V4's have the names of its files.
func gradientsOf(t *testing.T, folder string) func(p *moe.Param) ([]float32, error) {
	f, stored := file(t, folder, "gradients.safetensors"), map[string]string{}
	if strings.HasPrefix(folder, "deepseek_v4") {
		var c reference.Config
		for _, info := range f.Tensors() {
			stored[c.V4Name(info.Name)] = info.Name
		}
	}
	return func(p *moe.Param) ([]float32, error) { return f.Float32s(cmp.Or(stored[p.Name], p.Name)) }
}

// routerOutputs are what transformers' router modules return, in their order, as layerN_gate_0.
var routerOutputs = []string{"router_logits", "topk_weight", "topk_index"}

// compareActivation compares the rows of a rank's tokens, from lo of all. It returns false if the
// file has no such tensor.
func compareActivation(t *testing.T, f *safetensors.File, name string, x tensor.Tensor, lo, tokens int) bool {
	known := func(name string) bool {
		_, ok := f.Info(name)
		return ok
	}
	stored := func(name string) string {
		for i, output := range routerOutputs {
			if layer, ok := strings.CutSuffix(name, output); ok {
				for _, of := range []string{"gate", "mlp_gate"} {
					if other := fmt.Sprintf("%s%s_%d", layer, of, i); !known(name) && known(other) {
						return other
					}
				}
			}
		}
		return name
	}
	info, ok := f.Info(stored(name))
	if !ok {
		return false
	}
	width, rows := x.Dim(1), x.Dim(0)
	if strings.HasSuffix(name, "topk_weight") {
		return true // in the order of the model's own choices, which layerN_mlp has summed up
	}
	if x.DType() == tensor.INT32 {
		want, _ := ints(t, f, info.Name)
		for r := range rows {
			got, chosen := slices.Clone(x.I32()[r*width:(r+1)*width]), slices.Clone(want[(lo+r)*width:(lo+r+1)*width])
			slices.Sort(got)
			slices.Sort(chosen)
			if !slices.Equal(got, chosen) {
				t.Errorf("%s: token %d has experts %v, want %v", name, lo+r, got, chosen)
			}
		}
		return true
	}
	want, err := f.Float32s(info.Name)
	if err != nil || len(want) != tokens*width {
		t.Fatalf("%s: %d elements, %d of each token (%v)", name, len(want), width, err)
	}
	for i, g := range x.F32() {
		w := float64(want[lo*width+i])
		if off := math.Abs(float64(g)-w) / (1 + 5*math.Abs(w)); !(off <= activationBound) {
			t.Errorf("%s: element %d is %g, want %g", name, i, g, w)
			break
		}
	}
	return true
}

func distance(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff, norm = diff+d*d, norm+float64(w)*float64(w)
	}
	return math.Sqrt(diff / max(norm, math.SmallestNonzeroFloat64)) // an expert without tokens: zeros
}

// TestReplay trains as many steps as the reference did, with its choice among keys of equal scores.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		folder string
		steps  int
		ranks  []int
	}{{"deepseek_v3_tiny", 40, []int{1, 4}}, {"deepseek_v32_tiny", 20, []int{4}}, {"glm_moe_dsa_tiny", 20, []int{2}}, {"deepseek_v4_tiny", 20, []int{2}}} {
		testReplay(t, c.folder, c.steps, c.ranks)
	}
}

// nudge moves the weights of the last norm by the least possible. Without that, in step 4 one
// activation is to the last bit the limit of SwiGLU, and passes its gradient on. The reference's is
// above the limit, and does not.
func (r *rank) nudge() error {
	for p := range r.optim.Pieces {
		if p.Param.Name != "model.norm.weight" {
			continue
		}
		for i, w := range p.Master {
			p.Master[i] = math.Nextafter32(w, 2*w)
		}
	}
	return r.optim.Publish()
}

func testReplay(t *testing.T, folder string, steps int, ranks []int) {
	var trajectory struct {
		Optimizer struct {
			Betas       [2]float64
			Eps         float64
			WeightDecay float64 `json:"weight_decay"`
			MaxGradNorm float64 `json:"max_grad_norm"`
		}
		Steps []struct {
			LR, Loss float64
			GradNorm float64 `json:"grad_norm"`
		}
	}
	data, err := os.ReadFile(filepath.Join("testdata", folder, "train_trajectory.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &trajectory); err != nil || len(trajectory.Steps) != steps {
		t.Fatalf("%s: %d steps, %v; want %d", folder, len(trajectory.Steps), err, steps)
	}
	opt := trajectory.Optimizer
	rule, err := optim.Config{Name: "adamw", Beta1: opt.Betas[0], Beta2: opt.Betas[1], Eps: opt.Eps, WeightDecay: opt.WeightDecay, ClipNorm: opt.MaxGradNorm}.Rule()
	if err != nil {
		t.Fatal(err)
	}
	tokens, shape := ints(t, file(t, folder, "train_tokens.safetensors"), "tokens")
	batch, seq := shape[1], shape[2]-1
	for _, n := range ranks {
		t.Run(fmt.Sprintf("%s/np%d", folder, n), func(t *testing.T) {
			run(t, folder, n, batch, seq, rule, opt.MaxGradNorm, func(r *rank, lo, hi int) error {
				if folder == "deepseek_v4_tiny" {
					if err := r.nudge(); err != nil {
						return err
					}
				}
				r.chooseAsTorch(t, seq)
				for i, want := range trajectory.Steps {
					b := moe.Batch{Seq: seq, GlobalSequences: batch}
					for s := lo; s < hi; s++ {
						row := tokens[(i*batch+s)*(seq+1):][:seq+1]
						b.Inputs, b.Targets = append(b.Inputs, row[:seq]...), append(b.Targets, row[1:]...)
					}
					loss, err := r.model.Train(r.ex, b)
					if err != nil {
						return err
					}
					norm, err := r.optim.Reduce()
					if err != nil {
						return err
					}
					if err := r.optim.Apply(want.LR, norm); err != nil {
						return err
					}
					total := [1]float64{loss.Sum}
					if err := collective.AllReduce(r.comm, total[:], collective.Sum); err != nil {
						return err
					}
					off, normOff := math.Abs(total[0]/float64(batch*seq)-want.Loss), math.Abs(norm-want.GradNorm)/want.GradNorm
					if !(off <= lossBound) || !(normOff <= normBound) {
						t.Errorf("step %d: loss off by %.3g (bound %.0e), gradient norm by %.3g (bound %.0e)", i+1, off, lossBound, normOff, normBound)
					}
				}
				return nil
			})
		})
	}
}
