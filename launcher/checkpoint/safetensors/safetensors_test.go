package safetensors

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// rawFile is a file with this header, unpadded, and size bytes of data that count up.
func rawFile(header string, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range size {
		b = append(b, byte(i))
	}
	return b
}

func openBytes(b []byte) (*File, error) {
	return NewFile("test", bytes.NewReader(b), int64(len(b)))
}

func saveFile(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The file was written by the Python library; the expected values were read from it by other means.
func TestReferenceLibraryFile(t *testing.T) {
	f, err := Open("testdata/train_tokens.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := []Info{{Name: "tokens", DType: I32, Shape: []int{40, 2, 49}, Offset: 96, Size: 15680}}
	if got := f.Tensors(); !reflect.DeepEqual(got, want) {
		t.Fatalf("tensors %+v, want %+v", got, want)
	}
	data, err := f.Bytes("tokens")
	if err != nil {
		t.Fatal(err)
	}
	tokens, sum := make([]int32, len(data)/4), 0
	if _, err := binary.Decode(data, binary.LittleEndian, tokens); err != nil {
		t.Fatal(err)
	}
	for _, v := range tokens {
		sum += int(v)
	}
	if head := tokens[:5]; !slices.Equal(head, []int32{176, 19, 60, 183, 40}) || len(tokens) != 3920 || sum != 996492 ||
		slices.Min(tokens) != 0 || slices.Max(tokens) != 511 {
		t.Errorf("%d tokens, first %v, sum %d, range [%d, %d]", len(tokens), head, sum, slices.Min(tokens), slices.Max(tokens))
	}
}

func TestWritesTheReferenceLibrarysBytes(t *testing.T) {
	want, err := os.ReadFile("testdata/train_tokens.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	f, err := openBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "again.safetensors")
	if err := Write(path, tensorsOf(t, f), map[string]string{}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("writing what was read gives %d bytes that differ from the %d read (%v)", len(got), len(want), err)
	}
}

// tensorsOf reads all tensors of f into memory.
func tensorsOf(t *testing.T, f *File) []Tensor {
	t.Helper()
	var tensors []Tensor
	for _, info := range f.Tensors() {
		data, err := f.Bytes(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, Tensor{Name: info.Name, DType: info.DType, Shape: info.Shape, Data: data})
	}
	return tensors
}

func TestOpenRefuses(t *testing.T) {
	const a = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`
	long := rawFile("{"+a+"}", 4)
	binary.LittleEndian.PutUint64(long, 1<<62)
	beyond := rawFile("{"+a+"}", 4)
	binary.LittleEndian.PutUint64(beyond, uint64(len(beyond)-7))
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty file":         {nil, "too short"},
		"huge header length": {long, "header length 4611686018427387904"},
		"header beyond file": {beyond, "header length"},
		"empty header":       {rawFile("", 0), "'{'"},
		"not UTF-8":          {rawFile("{\"\xff\":1}", 0), "UTF-8"},
		"not JSON":           {rawFile("{", 0), "one JSON object"},
		"duplicate name":     {rawFile("{"+a+","+a+"}", 4), `duplicate key "a"`},
		"duplicate field":    {rawFile(`{"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `duplicate key "dtype"`},
		"duplicate metadata": {rawFile(`{"__metadata__":{"k":"1","k":"2"}}`, 0), `duplicate key "k"`},
		"metadata not text":  {rawFile(`{"__metadata__":{"k":1}}`, 0), "string"},
		"metadata of null":   {rawFile(`{"__metadata__":{"k":null}}`, 0), "null where a string"},
		"metadata a list":    {rawFile(`{"__metadata__":[null]}`, 0), `where "{" must be`},
		"tensor null":        {rawFile(`{"a":null}`, 0), `where "{" must be`},
		"dimension null":     {rawFile(`{"a":{"dtype":"U8","shape":[null],"data_offsets":[0,4]}}`, 4), "null] where an integer"},
		"unknown field":      {rawFile(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}}`, 4), `unknown field "x"`},
		"many dimensions":    {rawFile(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 32)+`1],"data_offsets":[0,1]}}`, 1), "more than 32 integers"},
		"three offsets":      {rawFile(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,2,4]}}`, 4), "more than 2 integers"},
		"long name":          {rawFile(`{"`+strings.Repeat("n", 1025)+`":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), "at most 1024 bytes long"},
		"long header":        {rawFile("{"+strings.Repeat(" ", 1<<20)+a+"}", 4), "limit for a file of"},
		"one offset":         {rawFile(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0]}}`, 4), "needs dtype, shape"},
		"offsets reversed":   {rawFile(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}}`, 4), "begin <= end"},
		"unknown dtype":      {rawFile(`{"a":{"dtype":"F31","shape":[4],"data_offsets":[0,4]}}`, 4), `unknown dtype "F31"`},
		"negative dimension": {rawFile(`{"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}}`, 4), "-4] where an integer"},
		"fraction":           {rawFile(`{"a":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}`, 4), "4.0] where"},
		"dimension a string": {rawFile(`{"a":{"dtype":"U8","shape":["4"],"data_offsets":[0,4]}}`, 4), `"4"] where`},
		"2^64":               {rawFile(`{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,4]}}`, 4), "2^63-1"},
		"shape overflows":    {rawFile(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}}`, 4), "overflows"},
		"size differs":       {rawFile(`{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}}`, 4), "span 4 bytes, F32 [4] takes 16"},
		"half a byte":        {rawFile(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), "whole number of bytes"},
		"truncated data":     {rawFile("{"+a+"}", 3), "truncated"},
		"data left over":     {rawFile("{"+a+"}", 5), "must end together"},
		"hole":               {rawFile(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}`, 4), "no holes"},
		"overlap":            {rawFile("{"+a+`,"b":{"dtype":"U8","shape":[3],"data_offsets":[2,5]}}`, 5), "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			path := saveFile(t, c.file)
			f, err := Open(path)
			if err == nil {
				t.Fatalf("accepted: %+v", f.Tensors())
			}
			for _, want := range []string{c.want, path} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// A claimed header length within the format's limit but beyond the file must not be allocated.
func TestOpenAllocatesNoClaim(t *testing.T) {
	const claim = 100_000_000
	file := binary.LittleEndian.AppendUint64(nil, claim)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := openBytes(append(file, "{}"...))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > claim/100 {
		t.Errorf("error %v, %d bytes allocated for a file of 10", err, n)
	}
}
