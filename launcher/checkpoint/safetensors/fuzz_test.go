package safetensors

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Whatever the bytes: no panic, and what is accepted is sound, so that writing it gives a file with
// the same content.
func FuzzOpen(f *testing.F) {
	const a = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	valid := rawFile(`{"__metadata__":{"format":"pt"},`+a+`,"b":{"dtype":"F4","shape":[2,1],"data_offsets":[8,9]}}`, 9)
	huge := bytes.Clone(valid)
	binary.LittleEndian.PutUint64(huge, 1<<63+5)
	for _, seed := range [][]byte{
		valid,
		rawFile(`{"__metadata__":null,`+a+`}`, 8),
		valid[:len(valid)-3],
		valid[:20],
		huge,
		rawFile("{"+a+`,"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}}`, 10),
		rawFile("{"+a+","+a+"}", 8),
		rawFile(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1),
		rawFile(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
		rawFile("{}", 0),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := openBytes(b)
		if err != nil {
			return
		}
		var total int64
		for _, info := range file.Tensors() {
			if info.Offset < 8 || info.Size < 0 || info.Offset+info.Size > int64(len(b)) {
				t.Fatalf("%+v leaves the file of %d bytes", info, len(b))
			}
			total += info.Size
			if values, err := file.Float32s(info.Name); err == nil && int64(len(values)) > info.Size {
				t.Fatalf("%d values from %+v", len(values), info)
			}
		}
		if header := binary.LittleEndian.Uint64(b); total+8+int64(header) != int64(len(b)) {
			t.Fatalf("header of %d and tensors of %d bytes do not make a file of %d", header, total, len(b))
		}
		again, err := openBytes(encode(t, tensorsOf(t, file), nil))
		if err != nil {
			t.Fatal(err)
		}
		for i, info := range again.Tensors() {
			was := file.Tensors()[i]
			x, errX := file.Bytes(was.Name)
			y, errY := again.Bytes(info.Name)
			if errX != nil || errY != nil || was.Name != info.Name || was.DType != info.DType || !bytes.Equal(x, y) {
				t.Fatalf("%+v became %+v (%v, %v)", was, info, errX, errY)
			}
		}
	})
}
