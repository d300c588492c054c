package safetensors

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sample has odd sizes, a scalar, an empty tensor and names that need escaping, in no particular order.
func sample() []Tensor {
	return []Tensor{
		{"b", U8, []int{3}, []byte{1, 2, 3}},
		{"z", BF16, []int{1, 3}, []byte{0, 0, 0x80, 0x3f, 0, 0xc0}},
		{"scalar", F64, nil, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{"none", F32, []int{0, 7}, nil},
		{"a <&>\"\\\n\u2028", F32, []int{1}, []byte{0, 0, 0x80, 0x3f}},
		{"i", I64, []int{1}, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
	}
}

func encode(t *testing.T, tensors []Tensor, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Encode(&b, tensors, metadata); err != nil {
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
	if !maps.Equal(f.Metadata(), metadata) {
		t.Errorf("metadata %v, want %v", f.Metadata(), metadata)
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
	if again := encode(t, tensorsOf(t, f), f.Metadata()); !bytes.Equal(again, file) {
		t.Error("write, read, write gives other bytes")
	}
}

// The layout of the reference library: highest dtype first, then by name, JSON without spaces, padded to 8.
func TestLayout(t *testing.T) {
	got := encode(t, []Tensor{
		{"c", U8, []int{1}, []byte{7}},
		{"b", F32, []int{1}, []byte{5, 5, 5, 5}},
		{"a", U8, []int{1}, []byte{6}},
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

func TestOrderOfArgumentsDoesNotMatter(t *testing.T) {
	tensors := sample()
	want := encode(t, tensors, nil)
	slices.Reverse(tensors)
	if !bytes.Equal(encode(t, tensors, nil), want) {
		t.Error("another order of the same tensors gives other bytes")
	}
	if !reflect.DeepEqual(tensors[5], sample()[0]) {
		t.Error("Encode reordered its argument")
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		tensors  []Tensor
		metadata map[string]string
		want     string
	}{
		"name twice":         {[]Tensor{{"a", U8, nil, []byte{1}}, {"a", U8, nil, []byte{1}}}, nil, "unique"},
		"reserved name":      {[]Tensor{{"__metadata__", U8, nil, []byte{1}}}, nil, "__metadata__"},
		"name not UTF-8":     {[]Tensor{{"\xff", U8, nil, []byte{1}}}, nil, "UTF-8"},
		"too little data":    {[]Tensor{{"a", F32, []int{2}, make([]byte, 4)}}, nil, "4 bytes of data, F32 [2] takes 8"},
		"unknown dtype":      {[]Tensor{{"a", "float", nil, nil}}, nil, "unknown dtype"},
		"negative dimension": {[]Tensor{{"a", U8, []int{-1}, nil}}, nil, "negative"},
		"metadata not UTF-8": {nil, map[string]string{"k": "\xff"}, "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			err := Encode(&b, c.tensors, c.metadata)
			if err == nil || !strings.Contains(err.Error(), c.want) || b.Len() != 0 {
				t.Errorf("error %v after %d bytes, want one that says %q before the first", err, b.Len(), c.want)
			}
		})
	}
}

func TestFailedWriteLeavesNoTrace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	if err := Write(path, sample(), nil); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []Tensor{{"a", U8, []int{9}, nil}}, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("an invalid tensor: %v, want an error that names the file", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the failed write changed the file (%v)", err)
	}
	if err := Write(dir, sample(), nil); err == nil {
		t.Error("renaming over a folder succeeded")
	}
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if left, err := filepath.Glob(filepath.Join(folder, ".*.tmp")); err != nil || len(left) != 0 {
			t.Errorf("temporary files left: %v (%v)", left, err)
		}
	}
}
