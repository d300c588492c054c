package checkpoint

import (
	"bytes"
	"maps"
	"path/filepath"
	"testing"
)

// The tokenizer lies beside the configuration, and the manifest vouches for it.
func TestTokenizer(t *testing.T) {
	const text = `{"model":{}}`
	dir := t.TempDir()
	w := writeShards(t, Disk{}, dir, 5, 2)
	if err := w.WriteTokenizer([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(stateAt(5), testConfig); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, stepName(5))
	whole := readFolder(t, path)
	if got := string(whole[tokenizerName]); got != text {
		t.Errorf("the tokenizer is %q, want %q", got, text)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	for name, data := range whole {
		if name != manifestName {
			size += int64(len(data))
		}
	}
	if r.Size() != size || !bytes.Equal(r.ConfigTOML(), testConfig) {
		t.Errorf("%d bytes, want %d; configuration %q", r.Size(), size, r.ConfigTOML())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for want, damage := range map[string]func(f map[string][]byte){
		"tokenizer.json is missing": func(f map[string][]byte) { delete(f, tokenizerName) },
		"tokenizer.json is damaged": func(f map[string][]byte) { f[tokenizerName] = []byte(`{"model":[]}`) },
	} {
		files := maps.Clone(whole)
		damage(files)
		step := filepath.Join(t.TempDir(), stepName(5))
		writeFolder(t, step, files)
		_, err := Open(step)
		checkError(t, err, want, step)
	}
}
