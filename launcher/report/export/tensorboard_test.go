package export

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spmoe/launcher/record"
)

// The reader here is one of its own: framing, checksums and wire format by the book, none of it
// from a library.

// checksum is CRC-32C bit by bit, masked as TFRecord has it.
func checksum(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	crc = ^crc
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// frames returns the records of a file, all of which must be whole.
func frames(t *testing.T, file []byte) (list [][]byte) {
	t.Helper()
	for len(file) > 0 {
		if len(file) < 16 {
			t.Fatalf("%d bytes are left over", len(file))
		}
		n := binary.LittleEndian.Uint64(file)
		if binary.LittleEndian.Uint32(file[8:]) != checksum(file[:8]) || uint64(len(file)) < 16+n {
			t.Fatalf("record %d: its head is broken", len(list))
		}
		data := file[12 : 12+n]
		if binary.LittleEndian.Uint32(file[12+n:]) != checksum(data) {
			t.Fatalf("record %d: its data is broken", len(list))
		}
		list, file = append(list, data), file[16+n:]
	}
	return list
}

// fields are those of a message by number, each with its values in order: uint64 or []byte.
type fields map[int][]any

func parse(t *testing.T, message []byte) fields {
	t.Helper()
	f := fields{}
	for len(message) > 0 {
		key, n := binary.Uvarint(message)
		message = message[n:]
		number := int(key >> 3)
		var value any
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(message)
			value, message = v, message[n:]
		case 1:
			value, message = binary.LittleEndian.Uint64(message), message[8:]
		case 2:
			size, n := binary.Uvarint(message)
			value, message = message[n:n+int(size)], message[n+int(size):]
		case 5:
			value, message = uint64(binary.LittleEndian.Uint32(message)), message[4:]
		default:
			t.Fatalf("wire type %d", key&7)
		}
		f[number] = append(f[number], value)
	}
	return f
}

func (f fields) message(t *testing.T, number int) fields {
	t.Helper()
	if len(f[number]) != 1 {
		t.Fatalf("field %d is there %d times in %v", number, len(f[number]), f)
	}
	return parse(t, f[number][0].([]byte))
}

func (f fields) text(number int) string { return string(f[number][0].([]byte)) }

func double(v any) float64 { return math.Float64frombits(v.(uint64)) }

func doubles(packed any) (list []float64) {
	for b := packed.([]byte); len(b) > 0; b = b[8:] {
		list = append(list, math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return list
}

// shown is what a reader gets of a file.
type shown struct {
	scalars    map[string]map[int]float32 // by tag and step
	histograms map[string]map[int]fields
	times      []float64
	steps      []int
}

func read(t *testing.T, run string) shown {
	t.Helper()
	content := content(t, run)
	s := shown{map[string]map[int]float32{}, map[string]map[int]fields{}, nil, nil}
	for i, data := range frames(t, content) {
		e := parse(t, data)
		s.times = append(s.times, double(e[1][0]))
		if i == 0 {
			if e.text(3) != "brain.Event:2" || len(e) != 2 {
				t.Errorf("the file begins with %v", e)
			}
			continue
		}
		step := int(e[2][0].(uint64))
		s.steps = append(s.steps, step)
		for _, value := range e.message(t, 5)[1] {
			v := parse(t, value.([]byte))
			tag := v.text(1)
			switch {
			case v[2] != nil:
				if s.scalars[tag] == nil {
					s.scalars[tag] = map[int]float32{}
				}
				if _, twice := s.scalars[tag][step]; twice {
					t.Errorf("%s of step %d is there twice", tag, step)
				}
				s.scalars[tag][step] = math.Float32frombits(uint32(v[2][0].(uint64)))
			case v[5] != nil:
				if s.histograms[tag] == nil {
					s.histograms[tag] = map[int]fields{}
				}
				s.histograms[tag][step] = v.message(t, 5)
			default:
				t.Errorf("%s has no value: %v", tag, v)
			}
		}
	}
	return s
}

// recordedRun writes steps, from after one to another, of a run as trainer would.
func recordedRun(t *testing.T, run string, from, to int) {
	t.Helper()
	w, err := record.Open(run, from)
	if err != nil {
		t.Fatal(err)
	}
	w.Start(record.Start{Step: from, Time: 1e9 + float64(from), CPU: "some CPU", Ranks: 2, Tokens: 2048, FLOPs: 1e7, Peak: 1e12})
	for step := from + 1; step <= to; step++ {
		loss := 6 / float64(step)
		if step == 3 {
			loss = math.NaN()
		}
		w.Step(record.Step{Step: step, Loss: record.Number(loss), GradNorm: 0.5, LR: 1e-3, Imbalance: 1.5, Seconds: 0.25, Time: 1e9 + float64(step)})
		if step%2 == 0 {
			w.Load(record.Load{Step: step, Layer: 1, Tokens: []int64{3, 0, int64(step)}})
			w.Phases(record.Phases{Step: step, Steps: 2, Seconds: 0.25, Families: map[string]float64{"bf16 forward": 0.2, "waiting": 0.05}})
			w.Eval(record.Eval{Step: step, Loss: record.Number(7 / float64(step)), Sequences: 4})
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func update(t *testing.T, w *TensorBoard) {
	t.Helper()
	if err := w.Update(); err != nil {
		t.Fatal(err)
	}
}

// content returns the only event file of a run.
func content(t *testing.T, run string) []byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(run, TensorBoardFolder, "*"))
	if err != nil || len(paths) != 1 || !regexp.MustCompile(`^events\.out\.tfevents\.\d{10}\.[^/ ]+\.\d+\.0$`).MatchString(filepath.Base(paths[0])) {
		t.Fatalf("event files %q, %v", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What a reader finds is what the record says.
func TestEvents(t *testing.T) {
	run := t.TempDir()
	w := OpenTensorBoard(run)
	update(t, w) // nothing is there
	if _, err := os.Stat(filepath.Join(run, TensorBoardFolder)); err == nil {
		t.Error("there are events of no record")
	}
	recordedRun(t, run, 0, 4)
	update(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := read(t, run)
	near := func(tag string, step int, want float64) {
		t.Helper()
		if got, ok := s.scalars[tag][step]; !ok || math.Abs(float64(got)-want) > 1e-6*want {
			t.Errorf("%s of step %d is %v (%v), want %v", tag, step, got, ok, want)
		}
	}
	near("loss/train", 2, 3)
	near("loss/held-out", 4, 1.75)
	near("optimizer/lr", 4, 1e-3)
	near("optimizer/grad_norm", 1, 0.5)
	near("experts/imbalance", 3, 1.5)
	near("seconds/step", 3, 0.25)
	near("speed/tokens_per_second", 1, 8192)
	near("speed/mfu", 1, 0.08192)
	near("seconds/bf16_forward", 2, 0.2)
	near("seconds/waiting", 4, 0.05)
	if _, ok := s.scalars["loss/train"][3]; ok || len(s.scalars["loss/train"]) != 3 {
		t.Errorf("losses %v: that of step 3 is no number", s.scalars["loss/train"])
	}
	h := s.histograms["experts/layer 01"][4]
	if min, max, n, sum, squares := double(h[1][0]), double(h[2][0]), double(h[3][0]), double(h[4][0]), double(h[5][0]); min != -0.5 || max != 2.5 || n != 7 || sum != 8 || squares != 16 {
		t.Errorf("a histogram from %v to %v of %v numbers, sums %v and %v", min, max, n, sum, squares)
	}
	if limits, counts := doubles(h[6][0]), doubles(h[7][0]); fmt.Sprint(limits, counts) != "[0.5 1.5 2.5] [3 0 4]" {
		t.Errorf("buckets to %v hold %v", limits, counts)
	}
	for i := 1; i < len(s.times); i++ {
		if s.times[i] < s.times[i-1] || s.times[i] < 1e9 || s.times[i] > 1e9+4 {
			t.Errorf("times %v", s.times)
		}
	}
}

// A file has each event once: also of a run that went back, that another process goes on with, or
// whose file was damaged. A new file stands after the one that it replaces.
func TestFiles(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, TensorBoardFolder), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, old := range []string{"events.out.tfevents.spmoe", "events.out.tfevents.9999999990.host.7.0"} {
		if err := os.WriteFile(filepath.Join(run, TensorBoardFolder, old), []byte("of an earlier version"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	w := OpenTensorBoard(run)
	for _, c := range []struct {
		what     string
		again    bool // in another process
		from, to int
	}{
		{"a new run", false, 0, 4}, {"goes on", false, 4, 6}, {"went back", false, 3, 7}, {"resumed", true, 7, 9}, {"went back, resumed", true, 5, 6},
	} {
		if c.again {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			w = OpenTensorBoard(run)
		}
		recordedRun(t, run, c.from, c.to)
		update(t, w)
		if s := read(t, run); len(s.scalars["optimizer/lr"]) != c.to {
			t.Errorf("%s: steps %v", c.what, s.steps)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(run, TensorBoardFolder, "events.out.tfevents.99999999*")); len(left) != 1 || strings.Contains(left[0], "9990") {
		t.Errorf("the newest file is %q", left)
	}
}

// TensorBoard's own reader finds the same scalars. The test needs Python with tensorboard.
func TestTensorBoardReads(t *testing.T) {
	if exec.Command("python3", "-c", "import tensorboard").Run() != nil {
		t.Skip("python3 has no tensorboard")
	}
	run := t.TempDir()
	recordedRun(t, run, 0, 4)
	w := OpenTensorBoard(run)
	update(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("python3", "../../../bench/peers/tensorboard/read.py", filepath.Join(run, TensorBoardFolder)).CombinedOutput()
	for _, want := range []string{"optimizer/lr: 4 scalars, step 1 0.001 to step 4 0.001", "experts/layer 01: 2 histograms, step 4: 7 choices of 3 experts"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("it lacks %q (%v):\n%s", want, err, out)
		}
	}
}
