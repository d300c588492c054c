package tensor

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"
)

func TestNew(t *testing.T) {
	for _, dtype := range []DType{FP32, BF16, INT32, UINT8} {
		for _, dims := range [][]int{{}, {0}, {1}, {7}, {3, 5}, {2, 0, 3}, {2, 3, 4, 5}, {1000, 1000}} {
			n := New(dtype, dims...)
			want := 1
			for _, d := range dims {
				want *= d
			}
			if n.Len() != want || len(n.Bytes()) != want*dtype.Size() || n.NDim() != len(dims) || !slices.Equal(n.Dims(), dims) {
				t.Errorf("%v %v has %d elements, %d bytes, dims %v", dtype, dims, n.Len(), len(n.Bytes()), n.Dims())
			}
			if n.DType() != dtype || !n.Valid() || n.Buffer() == nil {
				t.Errorf("%v %v: type %v, valid %v, buffer %v", dtype, dims, n.DType(), n.Valid(), n.Buffer())
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(n.Bytes()))); at%Alignment != 0 {
				t.Errorf("%v %v begins at %#x", dtype, dims, at)
			}
			if bytes.ContainsFunc(n.Bytes(), func(r rune) bool { return r != 0 }) {
				t.Errorf("%v %v is not zeroed", dtype, dims)
			}
		}
	}
}

func TestZeroTensor(t *testing.T) {
	var z Tensor
	if z.Valid() || z.Len() != 0 || len(z.Bytes()) != 0 || len(z.F32()) != 0 {
		t.Errorf("valid %v, %d elements, %d bytes", z.Valid(), z.Len(), len(z.Bytes()))
	}
}

// counting returns an INT32 tensor of 0, 1, 2, ...
func counting(dims ...int) Tensor {
	t := New(INT32, dims...)
	for i := range t.I32() {
		t.I32()[i] = int32(i)
	}
	return t
}

func TestViews(t *testing.T) {
	c := counting(4, 2, 3)
	for _, v := range []struct {
		name string
		view Tensor
		dims []int
		want []int32
	}{
		{"slice", c.Slice(1, 3), []int{2, 2, 3}, []int32{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},
		{"empty slice at the end", c.Slice(4, 4), []int{0, 2, 3}, nil},
		{"index", c.Index(2), []int{2, 3}, []int32{12, 13, 14, 15, 16, 17}},
		{"index of index", c.Index(3).Index(1), []int{3}, []int32{21, 22, 23}},
		{"scalar", c.Index(3).Index(1).Index(2), []int{}, []int32{23}},
		{"reshape", c.Index(0).Reshape(3, 2), []int{3, 2}, []int32{0, 1, 2, 3, 4, 5}},
		{"slice of reshape", c.Reshape(12, 2).Slice(11, 12), []int{1, 2}, []int32{22, 23}},
	} {
		if !slices.Equal(v.view.Dims(), v.dims) || !slices.Equal(v.view.I32(), v.want) {
			t.Errorf("%s: %v %v, want %v %v", v.name, v.view.Dims(), v.view.I32(), v.dims, v.want)
		}
	}
	c.Slice(1, 2).Index(0).Index(1).I32()[2] = -1
	if c.I32()[11] != -1 {
		t.Error("a view does not share memory")
	}
	c.Slice(2, 4).Zero()
	if got := c.I32(); got[11] != -1 || slices.Max(got[12:]) != 0 || got[10] != 10 {
		t.Errorf("after zeroing a slice: %v", got)
	}
}

func TestDim(t *testing.T) {
	n := New(FP32, 2, 3, 5)
	for i, want := range map[int]int{0: 2, 1: 3, 2: 5, -1: 5, -2: 3, -3: 2} {
		if got := n.Dim(i); got != want {
			t.Errorf("Dim(%d) = %d, want %d", i, got, want)
		}
	}
	n.Dims()[0] = 9
	if n.Dim(0) != 2 {
		t.Error("Dims is not a copy")
	}
}

func TestBytes(t *testing.T) {
	f, b := New(FP32, 2), New(BF16, 2)
	f.F32()[1] = 1.5
	b.BF16()[1] = ToBFloat16(1.5)
	if !bytes.Equal(f.Bytes(), []byte{0, 0, 0, 0, 0, 0, 0xc0, 0x3f}) {
		t.Errorf("fp32 bytes % x", f.Bytes())
	}
	if !bytes.Equal(b.Bytes(), []byte{0, 0, 0xc0, 0x3f}) {
		t.Errorf("bf16 bytes % x", b.Bytes())
	}
}

func TestTensorPanics(t *testing.T) {
	n := New(FP32, 4, 2)
	for want, f := range map[string]func(){
		"bf16 elements requested from a fp32 tensor":  func() { n.BF16() },
		"fp32 elements requested from a uint8 tensor": func() { New(UINT8, 4).F32() },
		"5 dimensions, at most 4":                     func() { New(FP32, 1, 1, 1, 1, 1) },
		"negative dimension":                          func() { New(FP32, 2, -1) },
		"slice [3, 5) of a first dimension of 4": func() {
			n.Slice(3, 5)
		},
		"slice [-1, 2)":                  func() { n.Slice(-1, 2) },
		"slice [3, 2)":                   func() { n.Slice(3, 2) },
		"slice [4, 5)":                   func() { n.Index(4) },
		"cannot reshape [4 2] to [3 3]":  func() { n.Reshape(3, 3) },
		"dimension 2 of a tensor of 2":   func() { n.Dim(2) },
		"dimension -3 of a tensor of 2":  func() { n.Dim(-3) },
		"rows [2, 5) of a matrix of 4":   func() { n.Mat().RowSlice(2, 5) },
		"rows [-1, 1) of a matrix of 2 ": func() { n.Mat().ColSlice(-1, 1) },
	} {
		mustPanic(t, want, f)
	}
}
