package referee

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The golden pack of sparse attention, from its models and batches. This writes it again:
//
//	go test ./launcher/referee -run GoldenPack -update
const packFolder = "../../bench/results/dsa"

var (
	update = flag.Bool("update", false, "write the golden pack of bench/results/dsa again")
	kept   = regexp.MustCompile(`(embed_tokens|lm_head|layers\.\d|self_attn|mlp)\.output$|(self_attn|mlp|indexer)\.input$|indexer\.input\.1$|\.indices$|indexer\.(scores|loss)$|gate\.logits$|^loss$`)
)

// packed runs a whole model of the pack with choices of its own.
func packed(t *testing.T, family, stage, mistake string) (j *judge, results outcome) {
	folder, err := step.Open(filepath.Join(packFolder, family))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { folder.Close() })
	folder.Info.Auxiliary[0].Stage = stage
	j = newJudge(folder)
	tr, err := j.model(step.Repeat{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	tr.call.Mistake, tr.call.Given = mistake, known(nil)
	if results, err = tr.run(tr.call); err != nil {
		t.Fatal(err)
	}
	return j, results
}

// The committed files are what the reference computes.
func TestGoldenPack(t *testing.T) {
	for _, family := range []string{"v32", "glm5"} {
		files := map[string][]safetensors.Tensor{}
		for _, stage := range []string{"sparse", "warmup"} {
			j, results := packed(t, family, stage, "")
			for _, name := range slices.Sorted(maps.Keys(results)) {
				file, x := map[string]string{"sparse": "activations", "warmup": "warmup"}[stage], results[name]
				switch dims, isParam := j.folder.Model.ParamDims(name); {
				case isParam && stage == "sparse":
					file, x.Dims = "gradients", dims
				case isParam && strings.Contains(name, ".indexer."):
					name, x.Dims = "gradient:"+name, dims
				case !kept.MatchString(name) || isParam:
					continue
				}
				files[file] = append(files[file], encoded(name, x, reference.Exact))
			}
		}
		for file, tensors := range files {
			compareFile(t, filepath.Join(packFolder, family, file+".safetensors"), tensors)
		}
		path, table := filepath.Join(packFolder, family, "signatures.tsv"), signatures(t, family)
		if *update {
			if err := os.WriteFile(path, []byte(table), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if committed, err := os.ReadFile(path); err != nil || string(committed) != table {
			t.Errorf("%s is not what the reference computes: %v\n%s", path, err, table)
		}
	}
}

func compareFile(t *testing.T, path string, tensors []safetensors.Tensor) {
	if *update {
		if err := safetensors.Write(path, tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer committed.Close()
	if n := len(committed.Tensors()); n != len(tensors) {
		t.Errorf("%s has %d tensors, want %d", path, n, len(tensors))
	}
	for _, x := range tensors {
		data, err := committed.Bytes(x.Name)
		if x.DType == safetensors.I32 && !bytes.Equal(data, x.Data) || err != nil || len(data) != len(x.Data) {
			t.Errorf("%s: %s differs: %v", path, x.Name, err)
			continue
		}
		got, want := make([]float32, len(data)/4), make([]float32, len(x.Data)/4)
		binary.Decode(data, binary.LittleEndian, got)
		binary.Decode(x.Data, binary.LittleEndian, want)
		var off, norm float64
		for i := 0; i < len(got) && x.DType == safetensors.F32; i++ {
			off, norm = math.Hypot(off, float64(got[i]-want[i])), math.Hypot(norm, float64(want[i]))
		}
		if !(off <= 1e-6*norm) {
			t.Errorf("%s: %s is off by %.2g of %.2g", path, x.Name, off, norm)
		}
	}
}

// signatures says what each known mistake of an indexer changes, in a line for each.
func signatures(t *testing.T, family string) (text string) {
	j, right := packed(t, family, "sparse", "")
	for _, mistake := range reference.Mistakes() {
		if !strings.HasPrefix(mistake.Name, "index_") {
			continue
		}
		_, wrong := packed(t, family, "sparse", mistake.Name)
		first, gradient, worst, loss := "-", "-", 1e-5, 0.0 // loss: of the indexers
		change := func(name string) float64 {
			return distance(wrong[name].Data, right[name].Data, nil) / max(normOf(right[name].Data, nil), tiny)
		}
		for _, m := range j.modules {
			if m.OfGradients || m.Children != nil {
				continue
			}
			for _, out := range m.Outputs {
				if first == "-" && change(out.Label()) > 1e-5 {
					first = m.Path
				}
			}
			if m.Kind == reference.IndexLoss {
				loss += wrong[m.Path].Data[0] - right[m.Path].Data[0]
			}
			for _, name := range m.Params {
				if e := change(name); e > worst && !strings.Contains(name, "experts.") { // some have no tokens
					gradient, worst = name, e
				}
			}
		}
		if first != "-" || gradient != "-" { // else it needs documents, or shared layers
			text += fmt.Sprintf("%s\t%.1e\t%+.1e\t%+.1e\t%s\t%.1e\t%s\n", mistake.Name, change("lm_head.output"), wrong["loss"].Data[0]-right["loss"].Data[0], loss, first, worst, gradient)
		}
	}
	return text
}
