package record

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spmoe/launcher/system"
)

// A link in place of a record is refused, and nothing of its target is told.
func TestLinkedRecord(t *testing.T) {
	run := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("@precious\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{File, EventsFile} {
		if err := os.Symlink(secret, filepath.Join(run, name)); err != nil {
			t.Fatal(err)
		}
	}
	_, read := Read(run)
	_, _, follow := Follow(run).Next()
	_, events := ReadEvents(run)
	_, open := Open(run, 1)
	for what, err := range map[string]error{"read": read, "follow": follow, "events": events, "open": open} {
		if !errors.Is(err, system.ErrNotRegular) || strings.ContainsAny(err.Error(), "@") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if text, err := os.ReadFile(secret); !reflect.DeepEqual(text, []byte("@precious\n")) || err != nil {
		t.Errorf("the target has %q, %v", text, err)
	}
}
