package record

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// next returns what a Follower hands over, as a log.
func next(t *testing.T, f *Follower, want bool) Log {
	t.Helper()
	lines, again, err := f.Next()
	if err != nil {
		t.Fatal(err)
	}
	if again != want {
		t.Errorf("again is %v, want %v", again, want)
	}
	log := Log{}
	for _, l := range lines {
		l.addTo(&log)
	}
	return log
}

// A follower gets every line once, none before it is complete, and all of them again when the run
// has gone back.
func TestFollow(t *testing.T) {
	run, want := t.TempDir(), sample()
	f := Follow(run)
	if got := next(t, f, false); !reflect.DeepEqual(got, Log{}) {
		t.Errorf("before the record is there: %+v", got)
	}
	w := open(t, run, 0)
	write(w, want, 0, 1)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if got, all := next(t, f, false), readBack(t, run); !reflect.DeepEqual(got, all) {
		t.Errorf("at first: %+v, want %+v", got, all)
	}
	if got := next(t, f, false); !reflect.DeepEqual(got, Log{}) {
		t.Errorf("nothing was added: %+v", got)
	}

	// A line that comes in two parts.
	path, line := filepath.Join(run, File), `{"step":{"step":2,"loss":1}}`
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, part := range []string{line[:10], line[10:] + "\n"} {
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if got := next(t, f, false); len(got.Steps) != i {
			t.Errorf("after part %d: %+v", i, got)
		}
	}

	// The run goes back, and has made as many bytes again before anybody looks.
	closed(t, w)
	w = open(t, run, 1)
	for step := 2; step < 9; step++ {
		w.Step(Step{Step: step, Loss: 2, Seconds: 1, Time: float64(step)})
	}
	closed(t, w)
	if got, all := next(t, f, true), readBack(t, run); !reflect.DeepEqual(got, all) || len(got.Steps) != 8 {
		t.Errorf("after going back: %+v, want %+v", got, all)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := next(t, f, true); !reflect.DeepEqual(got, Log{}) {
		t.Errorf("the record is gone: %+v", got)
	}
}

// Text of a model is any bytes, and may be long: what can be read again is written.
func TestSampleIsBounded(t *testing.T) {
	for _, text := range []string{"", "\xff\xfe", strings.Repeat("é", maxSample), strings.Repeat("\xff", maxSample), strings.Repeat("\x00", 2*maxSample)} {
		run := t.TempDir()
		w := open(t, run, 0)
		w.Sample(Sample{Step: 1, Prompt: text, Text: text})
		closed(t, w)
		got := readBack(t, run).Samples[0]
		if n := len(got.Text); got.Prompt != got.Text || n > maxSample || len(text) > maxSample && n < maxSample/3-3 && n != 3 {
			t.Errorf("%.20q: %d bytes are recorded", text, n)
		}
	}
}

// However a record comes, in which two parts, a follower gets what a reader of the whole does, or
// refuses what that refuses. What it gets can be written and read again.
func FuzzFollow(f *testing.F) {
	log := sample()
	f.Add(written(f, []Line{
		{Step: &log.Steps[1]}, {Eval: &log.Evals[0]}, {Load: &log.Loads[0]}, {Quantized: &log.Quantized[0]}, {Times: log.Times},
		{Done: log.Done}, {Start: &log.Starts[0]}, {Phases: &log.Phases[0]}, {Sample: &log.Samples[0]},
	}), 100)
	f.Add([]byte("{\"done\":{}}\n\n"), 12)
	f.Add([]byte("{\"step\":{\"loss\":null}}\n{\"usage\":{\"moved\":1}}\n{\"choices\":{\"step\":1,\"experts\":\"AAE=\"}}\n{"), 30)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		run := t.TempDir()
		read := func(from *Follower, text []byte) (lines []Line, err error) {
			if err := os.WriteFile(filepath.Join(run, File), text, 0o600); err != nil {
				t.Fatal(err)
			}
			lines, again, err := from.Next()
			if again {
				t.Fatal("what was only added to begins again")
			}
			return lines, err
		}
		parts := Follow(run)
		got, failed := read(parts, data[:max(0, min(cut, len(data)))])
		if failed == nil {
			var more []Line
			more, failed = read(parts, data)
			got = append(got, more...)
		}
		lines, err := read(Follow(run), data)
		if (err != nil) != (failed != nil) && len(data) < maxLine {
			t.Fatalf("a reader says %v, a follower %v", err, failed)
		}
		if err != nil {
			return
		}
		text := written(t, lines)
		if back, err := read(Follow(run), text); err != nil || !bytes.Equal(written(t, back), text) || !bytes.Equal(written(t, got), text) {
			t.Errorf("%s comes back as %s, in parts as %s, %v", text, written(t, back), written(t, got), err)
		}
	})
}
