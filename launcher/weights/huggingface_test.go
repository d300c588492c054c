package weights

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// A model in shards is that of one file.
func TestShards(t *testing.T) {
	dir := sharded(t)
	one, many := opened(t, reference), opened(t, dir)
	if one.Config() != many.Config() || len(many.opened) != 4 {
		t.Errorf("%+v of %d files, want %+v", many.Config(), len(many.opened), one.Config())
	}
	for i, x := range one.Tensors() {
		if y := many.Tensors()[i]; x.Name != y.Name || !slices.Equal(all(t, one, x.Name), all(t, many, x.Name)) {
			t.Errorf("%s differs from %s", y.Name, x.Name)
		}
	}
}

// The index of a folder that somebody else has made is not believed.
func TestShardsRefused(t *testing.T) {
	const (
		norm  = "model.norm.weight"
		first = "model-00001-of-00004.safetensors"
	)
	outside := filepath.Join(t.TempDir(), "outside.safetensors")
	if err := safetensors.Write(outside, []safetensors.Tensor{{Name: norm, DType: safetensors.F32, Shape: []int{1}, Data: f32(1)}}, nil); err != nil {
		t.Fatal(err)
	}
	index := func(change func(files map[string]string)) func(dir string) {
		return func(dir string) {
			var whole struct {
				Files map[string]string `json:"weight_map"`
			}
			path := filepath.Join(dir, indexName)
			if err := json.Unmarshal(readFile(t, path), &whole); err != nil {
				t.Fatal(err)
			}
			change(whole.Files)
			text, err := json.Marshal(whole)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, text)
		}
	}
	at := func(file string) func(string) { return index(func(files map[string]string) { files[norm] = file }) }
	replaced := func(by func(path string) error) func(string) {
		return func(dir string) {
			path := filepath.Join(dir, first)
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := by(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(dir string)
		words  []string
	}{
		"missing shard":   {replaced(func(string) error { return nil }), []string{first, "no such file", indexName + " names it"}},
		"unknown name":    {index(func(files map[string]string) { files["model.extra.weight"] = first }), []string{`"model.extra.weight" is not in ` + first}},
		"parent":          {at("../" + filepath.Base(outside)), []string{`"model.norm.weight" is said to be in "../outside.safetensors"`, "name of a file in the folder"}},
		"other kind":      {at("config.json"), []string{`"config.json"`, "ends in .safetensors"}},
		"link outside":    {replaced(func(path string) error { return os.Symlink(outside, path) }), []string{first, "not a regular file of this folder, but a link", "cp -rL"}},
		"folder as shard": {replaced(func(path string) error { return os.Mkdir(path, 0o777) }), []string{first, "not a regular file"}},
		"truncated shard": {func(dir string) {
			if err := os.Truncate(filepath.Join(dir, first), 100_000); err != nil {
				t.Fatal(err)
			}
		}, []string{first, "truncated?"}},
		"neither": {func(dir string) {
			if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
				t.Fatal(err)
			}
		}, []string{"there is neither model.safetensors nor model.safetensors.index.json: no such file"}},
		"empty index": {index(func(files map[string]string) { clear(files) }), []string{indexName, "weight_map is missing or empty"}},
		"no index":    {func(dir string) { writeFile(t, filepath.Join(dir, indexName), []byte("[]")) }, []string{indexName, "offset"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := sharded(t)
			c.change(dir)
			s, err := Open(dir)
			if err == nil {
				s.Close()
			}
			refused(t, err, append(c.words, dir)...)
			if strings.Contains(err.Error(), "statat") || strings.Contains(err.Error(), "openat") {
				t.Errorf("%v names a system call", err)
			}
		})
	}
}
