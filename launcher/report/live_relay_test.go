package report

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
)

// note returns a watcher that appends events to a list.
func note(events *[]any) *watcher {
	return &watcher{take: func(e any) { *events = append(*events, e) }, now: time.Now}
}

// tell reports a run.
func tell(to events.Watcher) {
	infinite := step
	infinite.GradNorm = record.Number(math.Inf(1))
	to.Start(start)
	to.Eval(events.Eval{})
	to.Step(step)
	to.Between(infinite)
	to.Saved(events.Saved{Step: 3, Path: "a\nb", Stall: time.Second})
	to.Sample(events.Sample{Step: 3, Prompt: "func ", Text: "\x1e\n\xff"})
	to.Alarm(events.Alarm{Text: "\x1e\x00\xff"})
	to.Stopping(events.Stopping{Step: 4, Again: "Ctrl-C"})
	to.Profile(events.Profile{Steps: 2, Families: []events.FamilyTime{{Name: "rest", Mean: 5}}})
	to.Done(events.Done{Step: 4, Sample: "x"})
}

// What a rank sends arrives as it was, in whatever pieces, and what it prints beside is passed on.
func TestWire(t *testing.T) {
	var want []any
	tell(note(&want))
	var sent bytes.Buffer
	sent.WriteString("before\n")
	tell(Relay(&sent))
	sent.WriteString("behind\n\x1eno event\n")
	for _, piece := range []int{1, 100, 1 << 20} {
		var got []any
		var other strings.Builder
		r := NewReceiver(note(&got), &other)
		for rest := sent.Bytes(); len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			if _, err := r.Write(rest[:min(piece, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != 10 || !reflect.DeepEqual(got, want) {
			t.Errorf("pieces of %d: %+v, want %+v", piece, got, want)
		}
		if other.String() != "before\nbehind\n\x1eno event\n" {
			t.Errorf("pieces of %d: passed on is %q", piece, other.String())
		}
	}
}

// Whatever a process prints, it is an event or passed on, and little of it is held.
func FuzzReceiver(f *testing.F) {
	var sent bytes.Buffer
	tell(Relay(&sent))
	f.Add(sent.Bytes())
	f.Add([]byte("text\n\x1e\n\x1eAAAA\n"))
	f.Add(bytes.Repeat([]byte("x"), longest+10))
	f.Fuzz(func(t *testing.T, b []byte) {
		var other bytes.Buffer
		r := NewReceiver(note(new([]any)), &other)
		if n, err := r.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		if len(r.rest) > longest || other.Len() > len(b) {
			t.Errorf("%d bytes are held, %d passed on of %d", len(r.rest), other.Len(), len(b))
		}
	})
}
