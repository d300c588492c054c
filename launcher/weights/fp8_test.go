package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
	"spmoe/tensor"
)

func bf16(values ...float32) (data []byte) {
	for _, x := range values {
		data = binary.LittleEndian.AppendUint16(data, uint16(tensor.ToBFloat16(x)))
	}
	return data
}

// Codes, scales and values by hand: two rows of three columns a block, of which the last ones are
// cut off.
func TestBlockScaled(t *testing.T) {
	const nan = 0x7f
	codes := []byte{
		0x38, 0x40, 0x30, 0xb8, 0x7e, // 1, 2, 0.5, -1, 448
		0x00, 0x80, 0x01, 0x07, 0x08, // 0, -0, 2^-9, 7·2^-9, 2^-6
		0x3c, nan, 0xfe, 0x81, 0x39, // 1.5, NaN, -448, -2^-9, 1.125
	}
	scales := []float32{2, 0.5, 0.25, 4} // of the blocks above each other: 2 and 0.25 on the left
	want := []float32{
		2, 4, 1, -0.5, 224,
		0, float32(math.Copysign(0, -1)), 0x1p-8, 7 * 0x1p-10, 0x1p-7,
		0.375, float32(math.NaN()), -112, -0x1p-7, 4.5,
	}
	for dtype, data := range map[string][]byte{safetensors.F32: f32(scales...), safetensors.BF16: bf16(scales...)} {
		s := opened(t, folder(t, fp8Config(2, 3),
			safetensors.Tensor{Name: "lm_head.weight", DType: safetensors.F8E4M3, Shape: []int{3, 5}, Data: codes},
			safetensors.Tensor{Name: "lm_head.weight_scale_inv", DType: dtype, Shape: []int{2, 2}, Data: data}))
		if n := len(s.Tensors()); n != 1 {
			t.Errorf("%d tensors, want the matrix", n)
		}
		for from := range want {
			for to := from; to <= len(want); to++ {
				got := make([]float32, to-from)
				if err := s.ReadInto("lm_head.weight", []int{3, 5}, int64(from), got); err != nil {
					t.Fatal(err)
				}
				for i, x := range got {
					if w := want[from+i]; math.Float32bits(x) != math.Float32bits(w) && (x == x || w == w) {
						t.Errorf("%s scales, elements %d to %d: element %d is %v, want %v", dtype, from, to, from+i, x, w)
					}
				}
			}
		}
	}
}

// The scales of a matrix may be in another shard, as in DeepSeek's folders.
func TestBlockScaledShards(t *testing.T) {
	dir := folder(t, fp8Config(2, 2), safetensors.Tensor{Name: "lm_head.weight", DType: safetensors.F8E4M3, Shape: []int{2, 3}, Data: []byte{0x38, 0x40, 0x30, 0xb8, 0x7e, 0x39}})
	const codes, scales = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	if err := os.Rename(filepath.Join(dir, singleName), filepath.Join(dir, codes)); err != nil {
		t.Fatal(err)
	}
	if err := safetensors.Write(filepath.Join(dir, scales), []safetensors.Tensor{{Name: "lm_head.weight_scale_inv", DType: safetensors.F32, Shape: []int{1, 2}, Data: f32(2, 0.5)}}, nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, indexName), fmt.Appendf(nil, `{"metadata":null,"weight_map":{"lm_head.weight":%q,"lm_head.weight_scale_inv":%q}}`, codes, scales))
	if got := all(t, opened(t, dir), "lm_head.weight"); !slices.Equal(got, []float32{2, 4, 0.25, -2, 896, 0.5625}) {
		t.Errorf("%v", got)
	}
}

// Blocks of 128 by 128 as DeepSeek-V3 has them, in matrices that end inside a block, larger than
// what is held at a time.
func TestBlockScaledShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{128, 128}, {1, 1}, {129, 127}, {300, 1000}, {1, 300_000}, {300_000, 1}, {700, 513}} {
		rows, cols := shape[0], shape[1]
		codes := make([]byte, rows*cols)
		for i := range codes {
			codes[i] = byte(rng.Uint32())
		}
		down, across := (rows+127)/128, (cols+127)/128
		scales := make([]float32, down*across)
		for i := range scales {
			scales[i] = rng.Float32()
		}
		s := opened(t, folder(t, fp8Config(128, 128),
			safetensors.Tensor{Name: "lm_head.weight", DType: safetensors.F8E4M3, Shape: shape[:], Data: codes},
			safetensors.Tensor{Name: "lm_head.weight_scale_inv", DType: safetensors.F32, Shape: []int{down, across}, Data: f32(scales...)}))
		for i, x := range all(t, s, "lm_head.weight") {
			want := mx.E4M3.Decode(codes[i]) * scales[i/cols/128*across+i%cols/128]
			if x != want && (x == x || want == want) {
				t.Fatalf("%v: element %d is %v, want %v", shape, i, x, want)
			}
		}
	}
}

func TestBlockScaledRefuses(t *testing.T) {
	codes := func(shape ...int) safetensors.Tensor {
		return safetensors.Tensor{Name: "lm_head.weight", DType: safetensors.F8E4M3, Shape: shape, Data: make([]byte, 15)}
	}
	scales := func(dtype string, data int, shape ...int) safetensors.Tensor {
		return safetensors.Tensor{Name: "lm_head.weight_scale_inv", DType: dtype, Shape: shape, Data: make([]byte, data)}
	}
	q := func(key string, value any) map[string]any {
		c := fp8Config(2, 3)
		c["quantization_config"].(map[string]any)[key] = value
		return c
	}
	good := scales(safetensors.F32, 16, 2, 2)
	for name, c := range map[string]struct {
		config  map[string]any
		tensors []safetensors.Tensor
		words   []string
	}{
		"no scales":      {fp8Config(2, 3), []safetensors.Tensor{codes(3, 5)}, []string{`"lm_head.weight" is F8_E4M3`, `no tensor "lm_head.weight_scale_inv"`}},
		"no config":      {nil, []safetensors.Tensor{codes(3, 5), good}, []string{`"lm_head.weight" is F8_E4M3`, "no quantization_config"}},
		"a vector":       {fp8Config(2, 3), []safetensors.Tensor{codes(15), good}, []string{"[15]", "expected a matrix"}},
		"fewer scales":   {fp8Config(2, 3), []safetensors.Tensor{codes(3, 5), scales(safetensors.F32, 8, 2, 1)}, []string{"lm_head.weight_scale_inv", "[2 1]", "F32 or BF16 of shape [2 2]"}},
		"other order":    {fp8Config(3, 2), []safetensors.Tensor{codes(3, 5), good}, []string{"shape [1 3]"}},
		"integer scales": {fp8Config(2, 3), []safetensors.Tensor{codes(3, 5), scales(safetensors.I32, 16, 2, 2)}, []string{"is I32", "expected F32 or BF16"}},
		"other method":   {q("quant_method", "gptq"), []safetensors.Tensor{good}, []string{`quant_method is "gptq"`, "only fp8"}},
		"other format":   {q("fmt", "e5m2"), []safetensors.Tensor{good}, []string{`fmt is "e5m2"`, "only e4m3"}},
		"no block":       {q("weight_block_size", nil), []safetensors.Tensor{good}, []string{"weight_block_size is []", "[128, 128]"}},
		"block of 0":     {q("weight_block_size", []int{0, 128}), []safetensors.Tensor{good}, []string{"weight_block_size is [0 128]"}},
		"huge block":     {q("weight_block_size", []int{1 << 62, 128}), []safetensors.Tensor{good}, []string{"weight_block_size is [4611686018427387904 128]"}},
		"three sides":    {q("weight_block_size", []int{1, 2, 3}), []safetensors.Tensor{good}, []string{"weight_block_size is [1 2 3]"}},
		"wrong type":     {map[string]any{"quantization_config": 3}, []safetensors.Tensor{good}, []string{configName, "offset"}},
	} {
		dir := folder(t, c.config, c.tensors...)
		_, err := Open(dir)
		refused(t, err, append(c.words, dir)...)
		if t.Failed() {
			t.Fatalf("%s", name)
		}
	}
}
