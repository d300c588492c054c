package spmd

import (
	"fmt"
	"strings"
	"testing"

	"spmoe/collective"
)

// Ranks of one program start silently, those of other builds of one revision with a note, and those
// of other revisions or of unknown sources do not.
func TestCompareBuilds(t *testing.T) {
	build := func(file byte, version string) []byte {
		b := make([]byte, buildBytes)
		b[0] = file
		copy(b[32:], version)
		return b
	}
	where := (&collective.Placement{Names: []string{"a", "b"}, First: []int{0, 1}, Ranks: 2}).Describe
	for _, c := range []struct {
		one, other []byte
		note, err  string
	}{
		{build(1, "12ab"), build(1, "12ab"), "", ""},
		{build(1, "12ab, modified"), build(1, "12ab, modified"), "", ""},
		{build(1, "12ab"), build(2, "12ab"), "rank 0 on host a runs launcher 12ab (SHA-256 010000000000), rank 1 on host b runs 12ab (020000000000)", ""},
		{build(1, "12ab"), build(2, "12ac"), "", "rank 0 on host a runs launcher 12ab (SHA-256 010000000000), rank 1 on host b runs 12ac (020000000000): install the same launcher"},
		{build(1, "12ab, modified"), build(2, "12ab, modified"), "", "the ranks run different programs"},
		{build(1, "unknown"), build(2, "unknown"), "", "the ranks run different programs"},
	} {
		note, err := compareBuilds([][]byte{c.one, c.other}, where)
		if (note == "") != (c.note == "") || !strings.Contains(note, c.note) || (err == nil) != (c.err == "") || !strings.Contains(fmt.Sprint(err), c.err) {
			t.Errorf("%q and %q: note %q, error %v", c.one, c.other, note, err)
		}
	}
}
