package checkpoint

import (
	"bytes"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// bf16Tensor returns n different elements of two bytes.
func bf16Tensor(n int) []byte {
	data := make([]byte, 2*n)
	for i := range n {
		data[2*i], data[2*i+1] = byte(i), 0x40+byte(i>>8)
	}
	return data
}

// Every range of a BF16 tensor, of pieces of odd lengths, next to an FP32 tensor of the same
// parameter.
func TestBF16(t *testing.T) {
	const n = 21
	data, shape := bf16Tensor(n), []int{3, 7}
	piece := func(begin, end int) Piece {
		return Piece{Name: "momentum/w", Shape: shape, Offset: int64(begin), BF16: data[2*begin : 2*end]}
	}
	master := Piece{Name: "master/w", Shape: shape, Data: make([]float32, n)}
	master.Data[4] = 0.1
	r := commitShards(t, []Piece{piece(0, 5), master}, []Piece{piece(3, 14)}, []Piece{piece(13, n)})
	for begin := range n + 1 {
		for end := begin; end <= n; end++ {
			want := piece(begin, end)
			got := want
			got.BF16 = make([]byte, len(want.BF16))
			if err := r.ReadInto(got); err != nil || !bytes.Equal(got.BF16, want.BF16) {
				t.Fatalf("[%d, %d) is %x (%v), want %x", begin, end, got.BF16, err, want.BF16)
			}
		}
	}
	checkReads(t, r, master)
	for name, want := range map[string]string{"momentum/w": safetensors.BF16, "master/w": safetensors.F32, "none": ""} {
		if got := r.DType(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	checkError(t, r.ReadInto(Piece{Name: "momentum/w", Shape: shape, Data: make([]float32, n)}), "is BF16, asked for F32", "another optimizer")
	checkError(t, r.ReadInto(Piece{Name: "master/w", Shape: shape, BF16: make([]byte, 2*n)}), "is F32, asked for BF16", "another optimizer")
}
