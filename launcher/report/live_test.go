package report

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"spmoe/internal/testing/vt"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// stage is a view on a model of a terminal, with a clock that the test moves.
type stage struct {
	*Live
	term  *vt.Terminal
	clock time.Time
}

func newStage(columns, rows int, style Style) *stage {
	s := &stage{term: vt.New(columns, rows), clock: time.Unix(1e9, 0)}
	s.Live = newLive(s.term, func() (int, int) { return s.term.Columns, s.term.Rows }, style, func() time.Time { return s.clock })
	return s
}

// later moves the clock, so that the next event is drawn.
func (s *stage) later(d time.Duration) *stage {
	s.clock = s.clock.Add(d)
	return s
}

// sees reports what is not on the screen, one row a line.
func (s *stage) sees(t *testing.T, want ...string) {
	t.Helper()
	if got := s.term.Screen(); got != strings.Join(want, "\n") || s.term.Err != nil {
		t.Errorf("seen is\n%s\nwant\n%s\n%v", got, strings.Join(want, "\n"), s.term.Err)
	}
	if column, text := s.term.Cursor(); column != 0 || text != "" {
		t.Errorf("the cursor is at column %d of %q: what comes next would not begin a line", column, text)
	}
}

var (
	liveStart = events.Start{
		Config: config.Config{Flavor: "debug", Precision: "bf16", Steps: 100, Batch: 16, Seq: 128, Out: "runs/debug-1"},
		Ranks:  2, Cores: 2, Tier: "avx2", CPU: "Some CPU",
	}
	liveStep = events.Step{
		Step: 25, Steps: 100, Loss: 3.25, GradNorm: 1.5, LR: 3e-3, TokensPerSec: 12345, MFU: 0.25,
		Memory: 300 << 20, Imbalance: 1.5, ETA: 95 * time.Second,
	}
)

func TestLive(t *testing.T) {
	s := newStage(72, 12, false)
	s.later(time.Second).Start(liveStart)
	s.later(time.Second).Eval(events.Eval{Loss: 5.5, Sequences: 1})
	if got := s.term.Screen(); !strings.Contains(got, "validation after step 0: loss 5.5000") ||
		!strings.HasSuffix(got, "░░   0%  first step  0/100  1s so far") {
		t.Errorf("before the first step:\n%s", got)
	}
	s.later(time.Second).Between(liveStep)
	live := []string{
		"███████░░░░░░░░░░░░░░░░░░░░░░░  25%  1m35s left  25/100  2s so far",
		"loss 3.2500  validation 5.5000  12,345 tokens/s  mfu 25.0%",
		"    memory 300 MiB  grad norm 1.500  lr 3.00e-03  imbalance 1.50",
	}
	if got := s.term.Screen(); !strings.HasSuffix(got, "validation after step 0: loss 5.5000 nats, 0.0000 bits/byte (1 sequence)\n"+strings.Join(live, "\n")) {
		t.Errorf("after a step between log lines:\n%s\nwant at its end\n%s", got, strings.Join(live, "\n"))
	}
	s.later(time.Second).Saved(events.Saved{Step: 25, Path: "p"})
	s.later(time.Second).Alarm(events.Alarm{Step: 25, Text: "no\x1b[2J\nroom"})
	got := s.term.Screen()
	for _, want := range []string{
		"saved p in 0s", "ALARM: no·[2J\nroom\n", "1m33s left  25/100  4s so far", "\nsaved step 25\nALARM no·[2J room",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s.later(0).Done(events.Done{Step: 100, Steps: 100, Ranks: 2, Elapsed: time.Minute})
	got = s.term.Screen()
	if strings.Contains(got, "█") || strings.Contains(got, "tokens/s") || !strings.Contains(got, "ALARM: no") ||
		!strings.Contains(got, "\ndone: 100 steps in 1m00s\n  training: loss") {
		t.Errorf("after the end:\n%s", got)
	}
	if all := s.term.All(); strings.Count(all, "validation after step 0") != 1 || strings.Count(all, "saved p") != 1 {
		t.Errorf("the log is not what it was:\n%s", all)
	}
}

// On 20 columns all is there, nothing wraps, and a very low terminal shows what has room.
func TestNarrow(t *testing.T) {
	s := newStage(20, 30, false)
	s.later(time.Second).Start(liveStart)
	s.later(time.Second).Eval(events.Eval{Loss: 5.5})
	s.later(time.Second).Between(liveStep)
	s.later(time.Second).Saved(events.Saved{Step: 20, Path: "p"})
	want := []string{
		"███░░░░░░░░░░░  25%", "    1m34s left", "    25/100", "    3s so far", "loss 3.2500", "    validation 5.50", "    12,345 tokens/s",
		"    mfu 25.0%", "    memory 300 MiB", "    grad norm 1.500", "    lr 3.00e-03", "    imbalance 1.50", "saved step 20",
	}
	if got := s.term.Screen(); !strings.HasSuffix(got, "\n"+strings.Join(want, "\n")) {
		t.Errorf("seen is\n%s\nwant at its end\n%s", got, strings.Join(want, "\n"))
	}
	s.term.Resize(20, 5)
	s.later(time.Second).Between(liveStep)
	s.sees(t, want[0], "    1m35s left", want[2], "    4s so far")
}

// A terminal that becomes narrower, wider, or lower, shows one picture, and the log above stays
// whole.
func TestResized(t *testing.T) {
	s := newStage(80, 40, false)
	s.later(time.Second).Start(liveStart)
	s.later(time.Second).Step(liveStep)
	for i, size := range [][2]int{{60, 40}, {33, 40}, {38, 14}, {20, 40}, {21, 40}, {120, 35}, {7, 40}, {80, 24}} {
		columns := size[0]
		s.term.Resize(columns, size[1])
		s.later(time.Second).Between(liveStep)
		if got := s.term.All(); strings.Count(got, "25%") != 1 && columns > 10 {
			t.Errorf("%d columns: not one picture:\n%s", columns, got)
		}
		s.later(time.Second)
		fmt.Fprintf(s, "line %d\n", i)
		for j := range i + 1 {
			if got := s.term.All(); strings.Count(got, fmt.Sprintf("line %d\n", j)) != 1 {
				t.Errorf("%d columns: line %d is not there once:\n%s", columns, j, got)
			}
		}
	}
	s.Close()
	s.later(time.Second)
	if got := s.term.All(); strings.Contains(got, "25%") || strings.Count(got, "spmoe: debug") != 1 || s.term.Err != nil {
		t.Errorf("closed:\n%s\n%v", got, s.term.Err)
	}
}

// Lines that come fast are drawn at most ten times a second, and none is lost.
func TestFast(t *testing.T) {
	var pictures int
	s := newStage(40, 200, false)
	s.screen.w = writerFunc(func(b []byte) (int, error) {
		pictures++
		return s.term.Write(b)
	})
	s.later(time.Second).Start(liveStart)
	before := pictures
	for i := range 100 {
		s.later(10 * time.Millisecond)
		fmt.Fprintf(s, "line %d\nand ", i)
		s.Between(liveStep)
	}
	if n := pictures - before; n < 9 || n > 11 {
		t.Errorf("%d pictures in a second", n)
	}
	s.Close()
	if got := s.term.All(); !strings.Contains(got, "\nline 0\nand line 1\n") || !strings.HasSuffix(got, "\nand line 99\nand") {
		t.Errorf("lines are missing:\n%s", got)
	}
	fmt.Fprint(s, " so on\n")
	if got := s.term.All(); !strings.HasSuffix(got, "\nand  so on") {
		t.Errorf("after the end:\n%s", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A view that was stopped and continues does not touch what the shell has written in between.
func TestContinued(t *testing.T) {
	s := newStage(60, 40, false)
	continued := make(chan os.Signal, 1)
	s.screen.continued = continued
	s.later(time.Second).Start(liveStart)
	s.later(time.Second).Between(liveStep)
	before := s.term.Screen()
	io.WriteString(s.term, "[1]+  Stopped\n$ ls\nREADME.md\n$ fg\n")
	continued <- os.Interrupt
	s.later(time.Second).Between(liveStep)
	s.later(time.Second).Between(liveStep)
	got := s.term.Screen()
	if !strings.HasPrefix(got, before+"\n[1]+  Stopped\n$ ls\nREADME.md\n$ fg\n") || strings.Count(got, "25/100") != 2 {
		t.Errorf("after fg:\n%s\nbefore:\n%s", got, before)
	}
}

// Clocks move between events, the bar does not.
func TestTick(t *testing.T) {
	s := newStage(72, 9, false)
	s.later(time.Second).Start(liveStart)
	s.later(time.Second).Between(liveStep)
	ticks := make(chan time.Time)
	s.stopped.Go(func() { s.watch(ticks) })
	s.later(30 * time.Second)
	ticks <- s.clock
	ticks <- s.clock // the first has been drawn
	s.mu.Lock()
	got := s.term.Screen()
	s.mu.Unlock()
	if !strings.Contains(got, "25%  1m05s left  25/100  31s so far") {
		t.Errorf("half a minute later:\n%s", got)
	}
	s.Close()
	s.Close()
}

// Without colour no sequence asks for one; with it, what is seen is the same.
func TestLiveStyle(t *testing.T) {
	var seen [2]string
	for i, style := range []Style{false, true} {
		s := newStage(60, 30, style)
		s.later(time.Second).Start(liveStart)
		s.later(time.Second).Step(liveStep)
		s.later(time.Second).Alarm(events.Alarm{Text: "smoke"})
		seen[i] = s.term.Screen()
		if coloured := len(s.term.Styles) > 0; coloured != bool(style) || s.term.Err != nil {
			t.Errorf("colours %t: asked for are %q, %v", style, s.term.Styles, s.term.Err)
		}
	}
	if seen[0] != seen[1] {
		t.Errorf("in colour it is\n%s\nwithout\n%s", seen[1], seen[0])
	}
}

// A skipped step is an alarm, which stays.
func TestSkipped(t *testing.T) {
	s := newStage(60, 30, false)
	s.later(time.Second).Start(liveStart)
	bad := liveStep
	bad.Loss, bad.Skipped, bad.SkippedTotal = record.Number(math.NaN()), true, 1
	s.later(time.Second).Between(bad)
	if got := s.term.Screen(); !strings.Contains(got, "loss NaN") {
		t.Errorf("the loss is not there:\n%s", got)
	}
	s.later(time.Second).Between(liveStep)
	if got := s.term.Screen(); !strings.Contains(got, "loss 3.2500") || !strings.Contains(got, "ALARM step 25 was skipped, 1 step so far") {
		t.Errorf("the alarm is not there:\n%s", got)
	}
}

// A picture of a run whose beginning this launcher has not seen.
func TestLate(t *testing.T) {
	s := newStage(60, 9, false)
	late := liveStep
	late.Elapsed = time.Minute
	s.later(time.Second).Between(late)
	if got := s.term.Screen(); !strings.Contains(got, "1m00s so far") {
		t.Errorf("seen is\n%s", got)
	}
}
