package record

import (
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
