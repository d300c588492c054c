package checkpoint

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

func TestOpenFollowsNoLinkOut(t *testing.T) {
	path := save(t, t.TempDir(), 1, 1)
	shard := filepath.Join(path, shardName(0, 1))
	outside := filepath.Join(t.TempDir(), "shard")
	if err := os.Rename(shard, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, shard); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	_, err := Open(path)
	checkError(t, err, shardName(0, 1)+" is not a regular file")
}

// Sealed manifests that break a rule: a hash protects from accidents, not from a wrong program.
func TestManifestRules(t *testing.T) {
	path := save(t, t.TempDir(), 1, 1)
	body, err := bodyOf(readFolder(t, path)[manifestName])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"version":4`, `"version":1`, "checkpoint version 1, this program reads versions 2 to 4"},
		{`"version":4`, `"version":"2"`, "cannot unmarshal"},
		{`"chunk_bytes":4194304`, `"chunk_bytes":1`, "chunks of 1 bytes: expected 4194304"},
		{`"size":24,"crc32c":[`, `"size":24,"crc32c":[1,`, "config.toml of 24 bytes has 2 checksums"},
		{`"step":1`, `"step":-1`, "negative"},
		{`"ranks":1`, `"ranks":2`, "1 shards of 2 ranks"},
		{`"ranks":1`, `"ranks":1,"extra":0`, "unknown field"},
		{`"name":"rank-00000-of-00001.safetensors"`, `"name":"../../../etc/passwd"`, "expected \"rank-00000"},
		{`"name":"config.toml"`, `"name":"/etc/passwd"`, "expected config.toml"},
		{`"master/model.layers.0.w":[5,7]`, `"master/model.layers.0.w":[5,-7]`, "negative"},
	} {
		changed := strings.Replace(string(body), c.old, c.new, 1)
		if changed == string(body) {
			t.Fatalf("the manifest has no %s: %s", c.old, body)
		}
		_, err := parseManifest(enclose([]byte(changed)))
		checkError(t, err, c.want)
	}
}

// Shards that are intact, but not what the manifest says.
func TestIndexRefuses(t *testing.T) {
	for _, c := range []struct {
		tensor safetensors.Tensor
		want   string
	}{
		{safetensors.Tensor{Name: "w", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}, "not the name of a piece"},
		{safetensors.Tensor{Name: "v@0", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}, `"v" is not in the manifest`},
		{safetensors.Tensor{Name: "w@0", DType: safetensors.F16, Shape: []int{1}, Data: make([]byte, 2)}, "expected 1-D F32 or BF16"},
		{safetensors.Tensor{Name: "w@0", DType: safetensors.F32, Shape: []int{1, 1}, Data: make([]byte, 4)}, "expected 1-D F32"},
		{safetensors.Tensor{Name: "w@2", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}, "inside shape [2]"},
		{safetensors.Tensor{Name: "w@9223372036854775807", DType: safetensors.F32, Shape: []int{1}, Data: make([]byte, 4)}, "inside shape [2]"},
	} {
		_, err := index([]*safetensors.File{openShard(t, c.tensor)}, map[string][]int{"w": {2}})
		checkError(t, err, c.want, shardName(0, 1))
	}
}

// FuzzManifest: whatever the body under a valid seal, no panic, and what is accepted survives
// writing and reading.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{
		`{"version":2,"step":3,"ranks":1,"meta":{"lr":0.1},"chunk_bytes":4194304,"config":{"name":"config.toml","size":2,"crc32c":[1]},` +
			`"shards":[{"name":"rank-00000-of-00001.safetensors","size":4194305,"crc32c":[4294967295,0]}],"tensors":{"a":[2,3],"b":[]}}`,
		`{"version":2,"ranks":-1}`,
		`{"version":1e3}`,
		`{"version":2,"tensors":{"a":[-1]}}`,
		`{"version":2,"chunk_bytes":4194304,"config":{"name":"config.toml","size":-9223372036854775808}}`,
		`null`, `[]`, `{`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseManifest(enclose(body))
		if err != nil {
			return
		}
		data, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(data)
		if err != nil {
			t.Fatalf("written again it is refused: %v", err)
		}
		if again.Step != m.Step || again.Ranks != m.Ranks || !slices.EqualFunc(again.files(), m.files(), sameFile) ||
			!maps.EqualFunc(again.Tensors, m.Tensors, slices.Equal) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

func sameFile(a, b file) bool {
	return a.Name == b.Name && a.Size == b.Size && slices.Equal(a.CRC32C, b.CRC32C)
}
