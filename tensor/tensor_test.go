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
