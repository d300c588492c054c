package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"spmoe/launcher/system"
)

// Damaged lines move to a file of their own, and the rest can be read and continued.
func TestRepair(t *testing.T) {
	run := t.TempDir()
	path := filepath.Join(run, File)
	if n, now, err := Repair(run); n != 0 || now != "" || err != nil {
		t.Errorf("without a record: %d lines in %q, %v", n, now, err)
	}
	w, err := Open(run, 0)
	if err != nil {
		t.Fatal(err)
	}
	write(w, sample(), 0, 2)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, err := Repair(run); n != 0 || err != nil {
		t.Errorf("a whole record has %d damaged lines, %v", n, err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	for i, bad := range []string{"\n", "{\"step\":{\"step\":-1}}\n", "\x00\n", strings.Repeat("x", 2*maxLine+7) + "\n", "{\"step\":{\"step\":1,\"loss\":%}}\n[]\n"} {
		text := bytes.Join([][]byte{bytes.Join(lines[:3], nil), []byte(bad), bytes.Join(lines[3:], nil), []byte("{\"st")}, nil)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		n, now, err := Repair(run)
		if want := strings.Count(bad, "\n"); n != want || err != nil {
			t.Errorf("%.20q: %d damaged lines, want %d, %v", bad, n, want, err)
		}
		name := File + ".bad"
		if i > 0 {
			name += fmt.Sprintf("-%d", i+1)
		}
		if aside, err := os.ReadFile(now); string(aside) != bad || filepath.Base(now) != name {
			t.Errorf("%.20q: %s has %.20q, %v", bad, now, aside, err)
		}
		if rest, err := os.ReadFile(path); !bytes.Equal(rest, whole) || err != nil {
			t.Errorf("%.20q: the rest has %d bytes, want %d, %v", bad, len(rest), len(whole), err)
		}
	}
}

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
	_, _, repair := Repair(run)
	_, read := Read(run)
	_, _, follow := Follow(run).Next()
	_, events := ReadEvents(run)
	_, open := Open(run, 1)
	for what, err := range map[string]error{"repair": repair, "read": read, "follow": follow, "events": events, "open": open} {
		if !errors.Is(err, system.ErrNotRegular) || strings.ContainsAny(err.Error(), "@") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if text, err := os.ReadFile(secret); !reflect.DeepEqual(text, []byte("@precious\n")) || err != nil {
		t.Errorf("the target has %q, %v", text, err)
	}
}
