package weights

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// fp8Model makes a folder of one matrix in FP8, whose scales are in another shard.
func fp8Model(t *testing.T, block [2]int, codes, scales safetensors.Tensor) string {
	t.Helper()
	codes.Name, codes.DType, scales.Name = "lm_head.weight", safetensors.F8E4M3, "lm_head.weight_scale_inv"
	dir := folder(t, map[string]any{"quantization_config": map[string]any{"fmt": "e4m3", "quant_method": "fp8", "weight_block_size": block}}, scales)
	const first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	if err := os.Rename(filepath.Join(dir, singleName), filepath.Join(dir, first)); err != nil {
		t.Fatal(err)
	}
	// Another tensor stands before the codes, so that they do not begin where the scales do.
	if err := safetensors.Write(filepath.Join(dir, second), []safetensors.Tensor{{Name: "a", DType: safetensors.F32, Shape: []int{1}, Data: f32(1)}, codes}, nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, indexName), fmt.Appendf(nil, `{"weight_map":{%q:%q,%q:%q}}`, scales.Name, first, codes.Name, second))
	return dir
}

// Every part of a matrix has the values of its codes times the scales of their blocks, and so has
// the model in BF16. The second matrix is larger than what is read at a time.
func TestBlockScaled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ shape, block [2]int }{{[2]int{3, 5}, [2]int{2, 3}}, {[2]int{700, 513}, [2]int{128, 64}}} {
		rows, cols, across := c.shape[0], c.shape[1], (c.shape[1]+c.block[1]-1)/c.block[1]
		codes, scales := make([]byte, rows*cols), make([]float32, (rows+c.block[0]-1)/c.block[0]*across)
		for i := range scales {
			scales[i] = float32(i+1) / 4
		}
		want := make([]float32, len(codes))
		for i := range codes {
			codes[i] = byte(rng.IntN(0x7f)) | byte(rng.IntN(2))<<7 // no NaN
			want[i] = format.E4M3.Decode(codes[i]) * scales[i/cols/c.block[0]*across+i%cols/c.block[1]]
		}
		s := opened(t, fp8Model(t, c.block, safetensors.Tensor{Shape: c.shape[:], Data: codes},
			safetensors.Tensor{DType: safetensors.F32, Shape: []int{len(scales) / across, across}, Data: f32(scales...)}))
		for from := 0; from <= len(want); from += 1 + len(want)/15 {
			for to := from; to <= len(want); to += 1 + len(want)/15 {
				got := make([]float32, to-from)
				if err := s.ReadInto("lm_head.weight", c.shape[:], int64(from), got); err != nil || !slices.Equal(got, want[from:to]) {
					t.Fatalf("%v: elements %d to %d differ, or: %v", c, from, to, err)
				}
			}
		}
		to := filepath.Join(t.TempDir(), "to")
		if r, err := s.Convert(t.Context(), to, Options{}); err != nil || r.Tensors != 1 || bytes.Contains(readFile(t, filepath.Join(to, configName)), []byte("quantization")) {
			t.Fatalf("%+v, %v", r, err)
		}
		for i, v := range all(t, opened(t, to), "lm_head.weight") {
			if w := tensor.ToBFloat16(want[i]).Float32(); math.Float32bits(v) != math.Float32bits(w) {
				t.Fatalf("%v: element %d in BF16 is %v, want %v", c, i, v, w)
			}
		}
	}
}

func TestBlockScaledRefuses(t *testing.T) {
	codes := safetensors.Tensor{Name: "lm_head.weight", DType: safetensors.F8E4M3, Shape: []int{3, 5}, Data: make([]byte, 15)}
	scales := safetensors.Tensor{Name: "lm_head.weight_scale_inv", DType: safetensors.F32, Shape: []int{2, 2}, Data: make([]byte, 16)}
	fp8 := func(method, kind string, block ...int) map[string]any {
		return map[string]any{"quantization_config": map[string]any{"quant_method": method, "fmt": kind, "weight_block_size": block}}
	}
	for want, dir := range map[string]string{
		`no tensor "lm_head.weight_scale_inv"`: folder(t, fp8("fp8", "e4m3", 2, 3), codes),
		"no quantization_config":               folder(t, nil, codes, scales),
		"of shape [1 3]":                       folder(t, fp8("fp8", "e4m3", 3, 2), codes, scales),
		`quant_method is "gptq"`:               folder(t, fp8("gptq", ""), scales),
		`fmt is "e5m2"`:                        folder(t, fp8("fp8", "e5m2", 2, 3), scales),
		"weight_block_size is [0 128]":         folder(t, fp8("fp8", "e4m3", 0, 128), scales),
	} {
		_, err := Open(dir)
		refused(t, err, want, dir)
	}
}
