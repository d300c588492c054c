package safetensors

import (
	"encoding/binary"
	"math"
	"testing"
)

// fileOf is an open file with one tensor "x" of the given elements.
func fileOf(t *testing.T, dtype string, elements any, count int) *File {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, elements)
	if err != nil {
		t.Fatal(err)
	}
	f, err := openBytes(encode(t, []Tensor{{Name: "x", DType: dtype, Shape: []int{count}, Data: data}}, nil))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// halfValue is the value of a binary16 by its definition, in float64.
func halfValue(h uint16) float64 {
	sign, exponent, fraction := 1-2*float64(h>>15), int(h>>10&0x1f), float64(h&0x3ff)
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction/1024, -14)
	}
	return sign * math.Ldexp(1+fraction/1024, exponent-15)
}

func TestEveryHalf(t *testing.T) {
	all := make([]uint16, 1<<16)
	for i := range all {
		all[i] = uint16(i)
	}
	got, err := fileOf(t, F16, all, len(all)).Float32s("x")
	if err != nil {
		t.Fatal(err)
	}
	for h, v := range got {
		want := halfValue(uint16(h))
		same := float64(v) == want && math.Signbit(float64(v)) == math.Signbit(want)
		if !same && !(v != v && want != want) {
			t.Fatalf("binary16 %#04x gives %g, want %g", h, v, want)
		}
	}
}

func TestFloat32s(t *testing.T) {
	nan := math.Float32frombits(0x7fc12345)
	for name, c := range map[string]struct {
		dtype    string
		elements any
		want     []float32
	}{
		"F32":  {F32, []float32{1, -0.5, 1e-45, nan}, []float32{1, -0.5, 1e-45, nan}},
		"BF16": {BF16, []uint16{0x3f80, 0xc049, 0x0001, 0x7f80}, []float32{1, -3.140625, 0x1p-133, float32(math.Inf(1))}},
		"F64 rounds to even": {F64, []float64{1 + 0x1p-24, 1 + 3*0x1p-24, 1e-50, 1e300},
			[]float32{1, 1 + 0x1p-22, 0, float32(math.Inf(1))}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fileOf(t, c.dtype, c.elements, len(c.want)).Float32s("x")
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if math.Float32bits(v) != math.Float32bits(c.want[i]) {
					t.Errorf("element %d is %g, want %g", i, v, c.want[i])
				}
			}
		})
	}
}
