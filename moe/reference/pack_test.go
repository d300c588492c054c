package reference

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// The golden pack of sparse attention. This writes it again:
//
//	go test ./moe/reference -run GoldenPack -update
const packFolder = "../../bench/results/dsa"

var layerOutput = regexp.MustCompile(`layers\.\d\.output$`)

var update = flag.Bool("update", false, "write the golden pack of bench/results/dsa again")

// pack is a model of the golden pack: its weights and its batch are drawn from a seed.
type pack struct {
	t       *testing.T
	config  *Config
	batch   *Batch
	weights map[string]Tensor
	losses  map[string]float64 // of the language model, and of all indexers
}

func newPack(t *testing.T, family string) *pack {
	config, err := os.ReadFile(filepath.Join(packFolder, family, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	p := &pack{t: t, weights: map[string]Tensor{}, losses: map[string]float64{"loss": 1}}
	if p.config, err = ReadConfig(config); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(88, 3))
	for _, m := range p.config.Modules() {
		if m.Kind == IndexLoss {
			p.losses[m.Path] = 1
		}
		for _, name := range slices.Concat(m.Params, m.Buffers) {
			dims := p.config.params[name]
			if _, ok := p.weights[name]; ok {
				continue
			}
			x, mean, scale := Tensor{Dims: dims}, 0.0, 0.1
			switch {
			case len(dims) == 2:
				scale = 1 / math.Sqrt(float64(dims[1]))
			case strings.HasSuffix(name, "norm.weight"):
				mean = 1
			}
			for range dims[0] * dims[len(dims)-1] / max(1, dims[0]*(2-len(dims))) {
				x.Data = append(x.Data, FP32.Round(mean+scale*rng.NormFloat64()))
			}
			p.weights[name] = x
		}
	}
	p.batch = &Batch{Batch: 2, Seq: 24, LabelsShifted: true}
	for i := range 48 {
		p.batch.IDs, p.batch.Labels = append(p.batch.IDs, rng.Int32N(64)), append(p.batch.Labels, rng.Int32N(64))
		if i%7 == 3 {
			p.batch.Labels[i] = -100
		}
	}
	return p
}

// run computes all of a step with all losses. In the first stage, only the indexers train.
func (p *pack) run(warmup bool, mistake string, noise float64) map[string]Tensor {
	losses := maps.Clone(p.losses)
	if warmup {
		delete(losses, "loss")
	}
	modules, rng := p.config.Modules(), rand.New(rand.NewPCG(1, 1))
	results, err := modules[len(modules)-1].Run(Call{
		Batch: p.batch, Backward: true, Losses: losses, Warmup: warmup, Mistake: mistake, Given: known(nil),
		Param: func(name string) (Tensor, error) {
			x := p.weights[name]
			x.Data = slices.Clone(x.Data)
			for i := range x.Data {
				x.Data[i] *= 1 + noise*rng.NormFloat64()
			}
			return x, nil
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return results
}

// files returns the contents of the model's folder.
func (p *pack) files() map[string]map[string]Tensor {
	files := map[string]map[string]Tensor{"model": p.weights, "batch": {}, "activations": {}, "gradients": {}, "warmup": {}}
	for name, values := range map[string][]int32{"input_ids": p.batch.IDs, "labels": p.batch.Labels} {
		x := Tensor{Dims: []int{p.batch.Batch, p.batch.Seq}}
		for _, v := range values {
			x.Data = append(x.Data, float64(v))
		}
		files["batch"][name] = x
	}
	kept := []string{"embed_tokens.output", "self_attn.input", "self_attn.output", "indexer.input", "indexer.input.1", "indexer.indices", "indexer.scores", "indexer.loss", "mlp.input", "mlp.output", "gate.logits", "gate.indices", "lm_head.output"}
	for stage, warmup := range map[string]bool{"activations": false, "warmup": true} {
		for name, x := range p.run(warmup, "", 0) {
			isOutput := slices.ContainsFunc(kept, func(end string) bool { return strings.HasSuffix(name, end) }) || name == "loss" || layerOutput.MatchString(name)
			switch dims, isParam := p.config.params[name]; {
			case isOutput:
				files[stage][name] = x
			case isParam && warmup && strings.Contains(name, ".indexer."):
				files["warmup"]["gradient:"+name] = Tensor{dims, x.Data}
			case isParam && !warmup && p.weights[name].Data != nil:
				files["gradients"][name] = Tensor{dims, x.Data}
			}
		}
	}
	return files
}

// signatures says what each known mistake of an indexer changes, in a line for each.
func (p *pack) signatures() (text string) {
	right := p.run(false, "", 0)
	change := func(wrong map[string]Tensor, name string) float64 {
		return distance(finite(wrong[name].Data), finite(right[name].Data))
	}
	for _, mistake := range Mistakes() {
		if !strings.HasPrefix(mistake.Name, "index_") {
			continue
		}
		wrong := p.run(false, mistake.Name, 0)
		first, gradient, worst := "-", "-", 1e-5
		var loss float64 // of the indexers
		for _, m := range p.config.Modules() {
			if m.OfGradients || m.Children != nil {
				continue
			}
			for _, out := range m.Outputs {
				if first == "-" && change(wrong, out.Label()) > 1e-5 {
					first = m.Path
				}
			}
			if m.Kind == IndexLoss {
				loss += wrong[m.Path].Data[0] - right[m.Path].Data[0]
			}
			for _, name := range m.Params {
				if e := change(wrong, name); e > worst {
					gradient, worst = name, e
				}
			}
		}
		if first == "-" && gradient == "-" { // as of a mistake with documents: the batch has none
			continue
		}
		text += fmt.Sprintf("%s\t%.1e\t%+.1e\t%+.1e\t%s\t%.1e\t%s\n", mistake.Name, change(wrong, "lm_head.output"), wrong["loss"].Data[0]-right["loss"].Data[0], loss, first, worst, gradient)
	}
	return text
}

func TestGoldenPack(t *testing.T) {
	for _, family := range []string{"v32", "glm5"} {
		p := newPack(t, family)
		p.compare(family, p.files())
		right, moved := p.run(false, "", 0), p.run(false, "", 1e-5)
		for name, x := range right {
			if strings.HasSuffix(name, ".indices") && !slices.Equal(slices.Sorted(slices.Values(x.Data)), slices.Sorted(slices.Values(moved[name].Data))) {
				t.Errorf("%s: other choices if all weights change by 1e-5", name)
			}
		}
		path, text := filepath.Join(packFolder, family, "signatures.tsv"), p.signatures()
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, want := strings.Fields(text), strings.Fields(string(committed))
		for i := range max(len(got), len(want)) {
			a, notNumber := strconv.ParseFloat(got[i], 64)
			b, _ := strconv.ParseFloat(want[i], 64)
			if notNumber != nil && got[i] != want[i] || math.Abs(a-b) > 0.11*math.Abs(b)+1e-7 {
				t.Errorf("%s: %s, the committed file has %s", path, got[i], want[i])
			}
		}
	}
}

// compare holds files against the committed ones.
func (p *pack) compare(family string, files map[string]map[string]Tensor) {
	for file, tensors := range files {
		path := filepath.Join(packFolder, family, file+".safetensors")
		if *update {
			p.write(path, tensors)
		}
		committed, err := safetensors.Open(path)
		if err != nil {
			p.t.Fatal(err)
		}
		if n := len(committed.Tensors()); n != len(tensors) {
			p.t.Errorf("%s has %d tensors, want %d", path, n, len(tensors))
		}
		for name, x := range tensors {
			g := &golden{t: p.t, files: map[string]*safetensors.File{file: committed}}
			if integers(name) {
				data, _ := committed.Bytes(name)
				for i, v := range x.Data {
					if got := int32(binary.LittleEndian.Uint32(data[4*i:])); got != int32(v) {
						p.t.Errorf("%s: %s has %d at %d, want %g", path, name, got, i, v)
					}
				}
			} else if d := distance(g.tensor(file, name).Data, x.Data); !(d < 1e-6) {
				p.t.Errorf("%s: %s is off by %.2g", path, name, d)
			}
		}
		committed.Close()
	}
}

func integers(name string) bool {
	return strings.HasSuffix(name, ".indices") || name == "input_ids" || name == "labels"
}

func (p *pack) write(path string, tensors map[string]Tensor) {
	var all []safetensors.Tensor
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: tensors[name].Dims}
		for _, v := range tensors[name].Data {
			bits := math.Float32bits(float32(v))
			if integers(name) {
				x.DType, bits = safetensors.I32, uint32(int32(v))
			}
			x.Data = binary.LittleEndian.AppendUint32(x.Data, bits)
		}
		all = append(all, x)
	}
	if err := safetensors.Write(path, all, nil); err != nil {
		p.t.Fatal(err)
	}
}
