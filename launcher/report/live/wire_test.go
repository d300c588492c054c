package live

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer"
)

// heard notes the events of a run.
type heard struct{ events []any }

func (h *heard) Start(e trainer.Start)       { h.events = append(h.events, e) }
func (h *heard) Step(e trainer.Step)         { h.events = append(h.events, e) }
func (h *heard) Wants() bool                 { return true }
func (h *heard) Between(e trainer.Step)      { h.events = append(h.events, "between", e) }
func (h *heard) Eval(e trainer.Eval)         { h.events = append(h.events, e) }
func (h *heard) Saved(e trainer.Saved)       { h.events = append(h.events, e) }
func (h *heard) Sample(e trainer.Sample)     { h.events = append(h.events, e) }
func (h *heard) Alarm(e trainer.Alarm)       { h.events = append(h.events, e) }
func (h *heard) Stopping(e trainer.Stopping) { h.events = append(h.events, e) }
func (h *heard) Profile(e trainer.Profile)   { h.events = append(h.events, e) }
func (h *heard) Done(e trainer.Done)         { h.events = append(h.events, e) }

// tell reports a run.
func tell(to trainer.Watcher) {
	infinite := step
	infinite.GradNorm = record.Number(math.Inf(1))
	to.Start(start)
	to.Eval(trainer.Eval{})
	to.Step(step)
	to.Between(infinite)
	to.Saved(trainer.Saved{Step: 3, Path: "a\nb", Stall: time.Second})
	to.Sample(trainer.Sample{Step: 3, Prompt: "func ", Text: "\x1e\n\xff"})
	to.Alarm(trainer.Alarm{Text: "\x1e\x00\xff"})
	to.Stopping(trainer.Stopping{Step: 4, Again: "Ctrl-C"})
	to.Profile(trainer.Profile{Steps: 2, Families: []trainer.FamilyTime{{Name: "rest", Mean: 5}}})
	to.Done(trainer.Done{Step: 4, Sample: "x"})
}

// What a rank sends arrives as it was, in whatever pieces, and what it prints beside is passed on.
func TestWire(t *testing.T) {
	var want heard
	tell(&want)
	var sent bytes.Buffer
	sent.WriteString("before\n")
	tell(&Sender{W: &sent})
	sent.WriteString("behind\n\x1eno event\n")
	for _, piece := range []int{1, 100, 1 << 20} {
		var got heard
		var other strings.Builder
		r := &Receiver{To: &got, Other: &other}
		for rest := sent.Bytes(); len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			if _, err := r.Write(rest[:min(piece, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("pieces of %d: %+v, want %+v", piece, got, want)
		}
		if other.String() != "before\nbehind\n\x1eno event\n" {
			t.Errorf("pieces of %d: passed on is %q", piece, other.String())
		}
	}
}

// A line that the launcher would get in pieces goes without the experts' loads.
func TestLongEvent(t *testing.T) {
	long := step
	long.Loads, long.Layers = make([]int64, 60*1000), 60
	for i := range long.Loads {
		long.Loads[i] = int64(i)
	}
	var sent bytes.Buffer
	(&Sender{W: &sent}).Step(long)
	var got heard
	(&Receiver{To: &got}).Write(sent.Bytes())
	long.Loads, long.Layers = nil, 0
	if sent.Len() > longest || !reflect.DeepEqual(got.events, []any{long}) {
		t.Errorf("%d bytes, %+v", sent.Len(), got.events)
	}
}

// Whatever a process prints, it is an event or passed on, and little of it is held.
func FuzzReceiver(f *testing.F) {
	var sent bytes.Buffer
	tell(&Sender{W: &sent})
	f.Add(sent.Bytes())
	f.Add([]byte("text\n\x1e\n\x1eAAAA\n"))
	f.Add(bytes.Repeat([]byte("x"), longest+10))
	f.Fuzz(func(t *testing.T, b []byte) {
		var other bytes.Buffer
		r := &Receiver{To: &heard{}, Other: &other}
		if n, err := r.Write(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		if len(r.rest) > longest || other.Len() > len(b) {
			t.Errorf("%d bytes are held, %d passed on of %d", len(r.rest), other.Len(), len(b))
		}
	})
}
