package datasets

import (
	"os"
	"path/filepath"
	"testing"
)

// The identity follows names and texts, and nothing else.
func TestIdentify(t *testing.T) {
	of := func(files map[string]string) Identity {
		dir := filepath.Join(t.TempDir(), "corpus")
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		id, err := Identify(t.Context(), []string{dir}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := of(map[string]string{"a": "one", "b": "two", "c": "\x00"})
	if first.Files != 3 || first.Documents != 2 || first.Bytes != 6 || first.Skipped != 1 || len(first.SHA256) != 64 {
		t.Errorf("%+v", first)
	}
	if again := of(map[string]string{"c": "\x00", "b": "two", "a": "one"}); again != first {
		t.Errorf("the same files elsewhere: %+v, want %+v", again, first)
	}
	for _, other := range []map[string]string{{"a": "one", "b": "twO"}, {"a": "one", "d": "two"}, {"a": "on", "b": "etwo"}} {
		if of(other).SHA256 == first.SHA256 {
			t.Errorf("%v has the identity of other files", other)
		}
	}
	if _, err := Identify(t.Context(), []string{t.TempDir()}, Options{}); err == nil {
		t.Error("an empty folder has an identity")
	}
}
