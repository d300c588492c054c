package weights

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/spmd"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// tomlOf is the configuration of a run of a model, with settings that this package does not know.
func tomlOf(t testing.TB, config moe.Config) []byte {
	t.Helper()
	text, err := toml.Marshal(struct {
		Flavor  string         `toml:"flavor"`
		Steps   int            `toml:"steps"`
		Section map[string]int `toml:"section"`
		Model   moe.Config     `toml:"model"`
	}{"debug", 9, map[string]int{"x": 1}, config})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOpenHuggingFace(t *testing.T) {
	s := opened(t, reference)
	if c := s.Config(); c.Layers != 3 || c.Experts != 16 || c.MTPLayers != 0 || s.Path() != reference {
		t.Errorf("%+v in %s", c, s.Path())
	}
	tensors := s.Tensors()
	if len(tensors) != 139 || tensors[0].Name != "lm_head.weight" {
		t.Errorf("%d tensors, the first is %s", len(tensors), tensors[0].Name)
	}
	file, err := safetensors.Open(filepath.Join(reference, singleName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, x := range tensors {
		want, err := file.Float32s(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := all(t, s, x.Name); !slices.Equal(got, want) || x.DType != safetensors.F32 {
			t.Errorf("%s differs", x.Name)
		}
	}
	const name = "model.layers.2.mlp.experts.9.down_proj.weight" // [64, 32]
	whole, part := all(t, s, name), make([]float32, 100)
	if err := s.ReadInto(name, []int{64, 32}, 777, part); err != nil || !slices.Equal(part, whole[777:877]) {
		t.Errorf("elements 777 to 877 differ (%v)", err)
	}
	refused(t, s.ReadInto(name, []int{32, 64}, 0, part), reference, name, "[64 32]", "[32 64]", "another model")
	refused(t, s.ReadInto("absent", []int{3}, 0, part), reference, `no tensor "absent" of shape [3]`)
}

func TestOpenRun(t *testing.T) {
	dir, config := run(t, 1)
	from := opened(t, reference)
	for _, path := range []string{dir, filepath.Join(dir, "step-00000007")} {
		s := opened(t, path)
		if s.Config() != config || s.Path() != filepath.Join(dir, "step-00000007") {
			t.Errorf("%s: %+v in %s, want %+v", path, s.Config(), s.Path(), config)
		}
		if c, err := ReadConfig(path); err != nil || c != config {
			t.Errorf("%s: %+v (%v)", path, c, err)
		}
		for _, x := range from.Tensors() {
			if !slices.Equal(all(t, s, x.Name), all(t, from, x.Name)) {
				t.Errorf("%s: %s differs", path, x.Name)
			}
		}
		for own, shared := range map[string]string{"embed_tokens.weight": "model.embed_tokens.weight", "shared_head.head.weight": "lm_head.weight"} {
			if !slices.Equal(all(t, s, "model.layers.3."+own), all(t, from, shared)) {
				t.Errorf("the MTP module's %s is not the model's", own)
			}
		}
		for _, x := range s.Tensors() {
			if bytes.ContainsAny([]byte(x.Name), "/@") {
				t.Errorf("%s is no weight", x.Name)
			}
		}
	}
}

// A folder that holds no weights says what was expected.
func TestOpenRefuses(t *testing.T) {
	empty := t.TempDir()
	half := t.TempDir()
	writeFile(t, filepath.Join(half, configName), readFile(t, filepath.Join(reference, configName)))
	large := folder(t, map[string]any{"vocab_size": 1 << 20}, safetensors.Tensor{Name: "x", DType: safetensors.F32, Shape: []int{1}, Data: f32(1)})
	broken, _ := run(t, 1)
	shard := filepath.Join(broken, "step-00000007", "rank-00001-of-00002.safetensors")
	data := readFile(t, shard)
	data[len(data)/2] ^= 1
	writeFile(t, shard, data)
	for path, words := range map[string][]string{
		filepath.Join(empty, "x"):            {"no such file", "expected the folder of a run", "Hugging Face"},
		filepath.Join(reference, configName): {"not a folder", "expected"},
		empty:                                {empty, "holds no weights", "expected the folder of a run"},
		half:                                 {half, "neither model.safetensors nor", "model.safetensors.index.json"},
		large:                                {large, "config.json describes a model of", "have 1 elements"},
		broken:                               {"rank-00001-of-00002.safetensors is damaged"},
	} {
		_, err := Open(path)
		refused(t, err, words...)
	}
	if _, err := os.Stat(shard); err != nil {
		t.Errorf("a damaged checkpoint was set aside: %v", err)
	}
}

func TestParseConfig(t *testing.T) {
	debug, err := moe.FlavorByName("debug")
	if err != nil {
		t.Fatal(err)
	}
	deep := debug
	deep.Layers = 9
	for text, want := range map[string]moe.Config{
		"flavor = 'debug'\nsteps = 3\n":                            debug, // a key that is missing has its flavor's value
		"flavor = 'debug'\n[model]\nlayers = 9\n":                  deep,
		"model.layers = 9\nother.key = [1, 'a']\nflavor = 'debug'": deep,
	} {
		if got, err := parseConfig([]byte(text)); err != nil || got.Model != want {
			t.Errorf("%q: %+v (%v)", text, got, err)
		}
	}
	for text, words := range map[string][]string{
		"":             {"unknown flavor"},
		"flavor = 'x'": {`unknown flavor "x"`},
		"flavor = ":    {"toml"},
		"flavor = 'debug'\n[model]\nlayers = 'many'":                     {"Layers"},
		"flavor = 'debug'\n[model]\nlayers = -1":                         {"model.layers is -1"},
		"flavor = 'debug'\n#" + string(bytes.Repeat([]byte("x"), 1<<20)): {"too long"},
	} {
		_, err := parseConfig([]byte(text))
		refused(t, err, words...)
	}
}

// Loading gives a model the working weights that it would have as the first step of a run which
// starts from the source, in every precision, quantized copies and biases included.
func TestLoad(t *testing.T) {
	dir, config := run(t, 1.1) // which BF16 does not hold
	s := opened(t, dir)
	for _, name := range []string{"fp32", "bf16", "mxfp8", "nvfp4"} {
		precision, err := moe.PrecisionByName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, ranks := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/np%d", name, ranks), func(t *testing.T) {
				err := spmd.Goroutines{N: ranks}.Run(func(c *collective.Comm) error {
					ex := tensor.NewExec()
					var models [2]*moe.Model
					for i := range models {
						var err error
						if models[i], err = moe.New(config, precision, 32, c, nil); err != nil {
							return err
						}
					}
					if err := s.Load(ex, models[0]); err != nil {
						return err
					}
					if err := s.Init(ex, optim.New(ex, models[1].Groups, c, optim.AdamW{}), models[1].Routings(), 0); err != nil {
						return err
					}
					return sameWeights(models[0], models[1])
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sameWeights returns an error unless all that two models multiply by is the same, and not zero.
func sameWeights(a, b *moe.Model) error {
	for i, g := range a.Groups {
		var want [][]byte
		for w := range b.Groups[i].Weights {
			want = append(want, w.Buffer().Bytes())
		}
		n := 0
		for w := range g.Weights {
			got := w.Buffer().Bytes()
			if n == len(want) || !bytes.Equal(got, want[n]) || !slices.ContainsFunc(got, func(b byte) bool { return b != 0 }) {
				return fmt.Errorf("vector %d of the %s group differs", n, g.Name)
			}
			n++
		}
		if n != len(want) {
			return fmt.Errorf("%d vectors of the %s group, want %d", n, g.Name, len(want))
		}
	}
	for i, r := range a.Routings() {
		got, want := r.Bias.F32(), b.Routings()[i].Bias.F32()
		if !slices.Equal(got, want) || !slices.ContainsFunc(got, func(x float32) bool { return x != 0 }) {
			return fmt.Errorf("%s is %v, want %v", r.Name, got, want)
		}
	}
	return nil
}

// A source without biases leaves routers with none, and one that lacks a weight is refused by its
// name.
func TestLoadIncomplete(t *testing.T) {
	drop := func(names ...string) *Source {
		s := opened(t, reference)
		for _, name := range names {
			if _, ok := s.entries[name]; !ok {
				t.Fatalf("there is no %s", name)
			}
			delete(s.entries, name)
		}
		return s
	}
	load := func(s *Source, config moe.Config) (m *moe.Model, err error) {
		err = spmd.Goroutines{N: 1}.Run(func(c *collective.Comm) (err error) {
			if m, err = moe.New(config, moe.Unquantized(tensor.FP32), 8, c, nil); err != nil {
				return err
			}
			for _, r := range m.Routings() {
				r.Bias.F32()[0] = 1
			}
			return s.Load(tensor.NewExec(), m)
		})
		return m, err
	}
	s := drop("model.layers.1.mlp.gate.e_score_correction_bias")
	m, err := load(s, s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if b := m.Routings()[0].Bias.F32(); b[0] != 0 || m.Routings()[1].Bias.F32()[0] == 0 {
		t.Errorf("the bias that is missing is %v", b)
	}
	const lost = "model.layers.1.mlp.experts.3.up_proj.weight"
	_, err = load(drop(lost), s.Config())
	refused(t, err, "no tensor", lost, "[32 64]")
	wide := s.Config()
	wide.DenseInter *= 2
	_, err = load(s, wide)
	refused(t, err, "model.layers.0.mlp.", "[128 64]", "[256 64]", "another model")
}

// An element that is not finite is an error that names the tensor and the element.
func TestNotFinite(t *testing.T) {
	for name, bad := range map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1), "-Inf": math.Inf(-1)} {
		values := make([]float32, 64)
		values[40] = float32(bad)
		s := &Source{path: "model", entries: map[string]entry{"model.norm.weight": {Tensor{"model.norm.weight", safetensors.F32, []int{64}}, given(values).floats}}}
		dst := make([]float32, 32)
		if err := s.readFinite("model.norm.weight", []int{64}, 0, dst); err != nil {
			t.Errorf("elements before %s: %v", name, err)
		}
		refused(t, s.readFinite("model.norm.weight", []int{64}, 32, dst), "model", `"model.norm.weight"`, "element 40 is "+name)
	}
}

// given is a tensor in memory.
type given []float32

func (g given) floats(dst []float32, offset int64) error {
	copy(dst, g[offset:])
	return nil
}
