package generate

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"spmoe/collective"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/tensor"
)

// reference is the logits that another implementation has computed for all of some texts.
type reference struct {
	tokens      []int32 // [batch, seq]
	batch, seq  int
	logits      []float32 // [batch, seq, vocab]
	vocab       int
	worst       float64 // |x - ref| / (1 + 5·|ref|)
	comparisons int
}

func readReference(t *testing.T, folder string) *reference {
	t.Helper()
	file, err := safetensors.Open(filepath.Join(folder, "activations.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, _ := file.Info("logits")
	data, err := file.Bytes("input_ids")
	if err != nil {
		t.Fatal(err)
	}
	tokens := make([]int32, len(data)/4)
	if _, err := binary.Decode(data, binary.LittleEndian, tokens); err != nil {
		t.Fatal(err)
	}
	logits, err := file.Float32s("logits")
	if err != nil {
		t.Fatal(err)
	}
	return &reference{tokens: tokens, batch: info.Shape[0], seq: info.Shape[1], vocab: info.Shape[2], logits: logits}
}

// compare holds scores after a token of a text against the reference.
func (r *reference) compare(text, at int, scores []float32) {
	r.comparisons++
	for i, want := range r.logits[(text*r.seq+at)*r.vocab:][:r.vocab] {
		r.worst = max(r.worst, math.Abs(float64(scores[i]-want))/(1+5*math.Abs(float64(want))))
	}
}

// Logits of texts that are computed token by token are those that transformers computes for the
// whole texts, to the bounds of the command check.
func TestAgainstReference(t *testing.T) {
	for _, name := range []string{"deepseek_v3_tiny", "deepseek_v2lite_like", "qwen3_moe_tiny", "glm4_moe_tiny"} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join("..", "golden", "testdata", name)
			ref := readReference(t, folder)
			source, err := weights.Open(folder)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			c, ex := collective.NewWorld(1).Comm(0), tensor.NewExec()
			m, err := moe.NewInference(source.Config(), moe.Unquantized(tensor.FP32), 1, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := source.Load(ex, m); err != nil {
				t.Fatal(err)
			}
			d, err := m.NewDecoder(ex, ref.seq)
			if err != nil {
				t.Fatal(err)
			}
			var caches []*moe.Cache
			half := ref.seq / 2
			for i := range ref.batch {
				caches = append(caches, d.NewCache(ref.seq))
				scores, err := d.Extend(ex, caches[i], ref.tokens[i*ref.seq:][:half])
				if err != nil {
					t.Fatal(err)
				}
				ref.compare(i, half-1, scores)
			}
			for at := half; at < ref.seq; at++ {
				var next []int32
				for i := range caches {
					next = append(next, ref.tokens[i*ref.seq+at])
				}
				scores, err := d.Step(ex, caches, next)
				if err != nil {
					t.Fatal(err)
				}
				for i := range caches {
					ref.compare(i, at, scores.Index(i).F32())
				}
			}
			t.Logf("off by %.2g at most, in %d comparisons", ref.worst, ref.comparisons)
			if !(ref.worst <= 2e-5) || ref.comparisons < 2*ref.batch {
				t.Errorf("off by %.2g, at most 2e-5 expected, in %d comparisons", ref.worst, ref.comparisons)
			}
		})
	}
}
