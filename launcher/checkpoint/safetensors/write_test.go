package safetensors

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sample has odd sizes, a scalar, an empty tensor and names that need escaping, in no particular
// order.
func sample() []Tensor {
	return []Tensor{
		{Name: "b", DType: U8, Shape: []int{3}, Data: []byte{1, 2, 3}},
		{Name: "z", DType: BF16, Shape: []int{1, 3}, Data: []byte{0, 0, 0x80, 0x3f, 0, 0xc0}},
		{Name: "scalar", DType: F64, Shape: nil, Data: []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{Name: "none", DType: F32, Shape: []int{0, 7}, Data: nil},
		{Name: "a <&>\"\\\n\u2028", DType: F32, Shape: []int{1}, Data: []byte{0, 0, 0x80, 0x3f}},
		{Name: "i", DType: I64, Shape: []int{1}, Data: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	}
}

func encode(t *testing.T, tensors []Tensor, metadata map[string]string) []byte {
	t.Helper()
	l, err := NewLayout(tensors, metadata)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	metadata := map[string]string{"format": "pt", "a": "<x>"}
	file := encode(t, sample(), metadata)
	f, err := openBytes(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(file, []byte(`{"__metadata__":{"a":"<x>","format":"pt"},`)) {
		t.Errorf("the header is %q, want the metadata in it", file)
	}
	names := make([]string, 0, 6)
	for _, info := range f.Tensors() {
		names = append(names, info.Name)
		if dtype, err := lookupDType(info.DType); err != nil || info.Offset*8%dtype.bits != 0 {
			t.Errorf("%s %q starts at %d, not at a multiple of its element size (%v)", info.DType, info.Name, info.Offset, err)
		}
	}
	if !slices.IsSorted(names) || len(names) != 6 {
		t.Errorf("names %q, want 6 in order", names)
	}
	for _, want := range sample() {
		info, ok := f.Info(want.Name)
		data, err := f.Bytes(want.Name)
		if !ok || err != nil || info.DType != want.DType || !slices.Equal(info.Shape, want.Shape) || !bytes.Equal(data, want.Data) {
			t.Errorf("wrote %+v, read %+v with %v (%v)", want, info, data, err)
		}
	}
	if again := encode(t, tensorsOf(t, f), metadata); !bytes.Equal(again, file) {
		t.Error("write, read, write gives other bytes")
	}
}

// The layout of the reference library: highest dtype first, then by name, JSON without spaces,
// padded to 8.
func TestLayout(t *testing.T) {
	got := encode(t, []Tensor{
		{Name: "c", DType: U8, Shape: []int{1}, Data: []byte{7}},
		{Name: "b", DType: F32, Shape: []int{1}, Data: []byte{5, 5, 5, 5}},
		{Name: "a", DType: U8, Shape: []int{1}, Data: []byte{6}},
	}, map[string]string{"y": "2", "x": "1"})
	want := rawFile(`{"__metadata__":{"x":"1","y":"2"},`+
		`"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},`+
		`"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},`+
		`"c":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}} `, 0)
	if len(want)%8 != 0 {
		t.Fatalf("the expected header has %d bytes: not padded", len(want))
	}
	if want = append(want, 5, 5, 5, 5, 6, 7); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLayoutRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		tensors  []Tensor
		metadata map[string]string
		want     string
	}{
		"name twice":         {[]Tensor{{Name: "a", DType: U8, Shape: nil, Data: []byte{1}}, {Name: "a", DType: U8, Shape: nil, Data: []byte{1}}}, nil, "unique"},
		"reserved name":      {[]Tensor{{Name: "__metadata__", DType: U8, Shape: nil, Data: []byte{1}}}, nil, "__metadata__"},
		"name not UTF-8":     {[]Tensor{{Name: "\xff", DType: U8, Shape: nil, Data: []byte{1}}}, nil, "UTF-8"},
		"too little data":    {[]Tensor{{Name: "a", DType: F32, Shape: []int{2}, Data: make([]byte, 4)}}, nil, "4 bytes of data, F32 [2] takes 8"},
		"unknown dtype":      {[]Tensor{{Name: "a", DType: "float", Shape: nil, Data: nil}}, nil, "unknown dtype"},
		"negative dimension": {[]Tensor{{Name: "a", DType: U8, Shape: []int{-1}, Data: nil}}, nil, "negative"},
		"metadata not UTF-8": {nil, map[string]string{"k": "\xff"}, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewLayout(c.tensors, c.metadata); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one that says %q", err, c.want)
			}
		})
	}
}

// A tensor that is streamed gives the bytes of one that lies in memory, and no more or fewer than
// its shape takes.
func TestStream(t *testing.T) {
	data := []byte("0123456789ab")
	parts := func(n int) func(io.Writer) error {
		return func(w io.Writer) error {
			for part := range slices.Chunk(data[:n], 5) {
				if _, err := w.Write(part); err != nil {
					return err
				}
			}
			return nil
		}
	}
	want := encode(t, []Tensor{{Name: "a", DType: F32, Shape: []int{3}, Data: data}, {Name: "b", DType: U8, Shape: []int{1}, Data: data[:1]}}, nil)
	got := encode(t, []Tensor{{Name: "b", DType: U8, Shape: []int{1}, Data: data[:1]}, {Name: "a", DType: F32, Shape: []int{3}, Stream: parts(12)}}, nil)
	if !bytes.Equal(got, want) {
		t.Errorf("streamed %q, in memory %q", got, want)
	}
	for n, text := range map[int]string{9: "9 bytes of data, U8 [10] takes 10", 11: "11 bytes of data, U8 [10] takes 10"} {
		path := filepath.Join(t.TempDir(), "x")
		err := Write(path, []Tensor{{Name: "a", DType: U8, Shape: []int{10}, Stream: parts(n)}}, nil)
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%d bytes for 10: error %v, want %q", n, err, text)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) > 0 {
			t.Errorf("%d bytes for 10 left %q", n, left)
		}
	}
}
