package datasets

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"spmoe/datasets/arrowipc"
	"spmoe/datasets/parquet"
)

// TestBombs: files that claim to be large, and have holes, are refused with little memory.
func TestBombs(t *testing.T) {
	const (
		tbyte = 1 << 40
		most  = 80 << 20 // bytes that refusing may allocate, all together: a buffer of the most that is read grows by doubling
	)
	le32 := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
	for _, b := range []struct {
		name, start, end string
		size             int64
		rule             string
	}{
		{"line.jsonl", `{"text":"`, "", tbyte, "line 1 has a NUL byte"},
		{"long.jsonl", `{"text":"` + strings.Repeat("x", 1<<20), "", tbyte, "line 1 has a NUL byte"},
		{"array.json", `[{"text":"`, "", tbyte, "it does not have a JSON object a line"},
		{"nested.jsonl", `{"text":` + strings.Repeat("[", 1<<20), "", 0, "no JSON object"},
		{"hole.parquet", parquet.Magic, "", tbyte, "does not begin and end with PAR1"},
		{"footer.parquet", parquet.Magic, le32(1<<31) + parquet.Magic, tbyte, "its footer has 2147483648 bytes"},
		{"zeros.parquet", parquet.Magic, le32(8<<20) + parquet.Magic, tbyte, "its metadata has no schema"},
		{"list.parquet", parquet.Magic, "\x15\x02\x19\xfc\xff\xff\xff\xff\xff\xff\x7f" + le32(11) + parquet.Magic, 1 << 20, "its metadata is damaged"},
		{"hole.arrow", "", "", tbyte, "it is no Arrow file"},
		{"file.arrow", arrowipc.Magic, "", tbyte, "it is cut off"},
		{"footer.arrow", arrowipc.Magic + "\x00\x00" + le32(0xffffffff) + le32(0), le32(1<<31) + arrowipc.Magic, 1 << 20, "its footer has 2147483648 bytes"},
	} {
		t.Run(b.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), b.name)
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(b.start)
			if err == nil && b.size > 0 {
				err = f.Truncate(b.size)
			}
			if err == nil {
				_, err = f.WriteAt([]byte(b.end), max(b.size, int64(len(b.start)))-int64(len(b.end)))
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Skip("no files with holes of a terabyte here:", err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = Load([]string{path}, Bytes{}, Options{})
			runtime.ReadMemStats(&after)
			wantError(t, err, b.rule, b.name)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("%d bytes were allocated", n)
			}
		})
	}
}
