package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"spmoe/collective/heap"
	"spmoe/datasets"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
	"spmoe/launcher/record"
	"spmoe/launcher/weights"
)

// bombMemory is what refusing a bomb may allocate, all together, in bytes: twice what the worst one
// takes, because the race detector makes some objects larger.
const bombMemory = 48 << 20

// bomb is something to be refused: how it is made in an empty folder, and the rule that its error
// must name.
type bomb struct {
	name string
	make func(t *testing.T, path string)
	rule string
}

// content makes a file.
func content(text string) func(*testing.T, string) {
	return func(t *testing.T, path string) { write(t, path, text) }
}

// sparse makes a file of some bytes that begins with a text, and takes no room on disk.
func sparse(text string, size int64) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.Truncate(write(t, path, text), size); err != nil {
			t.Fatal(err)
		}
	}
}

func folder(t *testing.T, path string) {
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, path string) {
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

func link(to string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
}

func missing(*testing.T, string) {}

// tensors makes a safetensors file of a header and some bytes of data.
func tensors(header string, data int) func(*testing.T, string) {
	return content(string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + strings.Repeat("\x01", data))
}

const (
	mark  = "\xef\xbb\xbf"
	one   = `"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`
	tbyte = 1 << 40
)

// notFiles are in the place of a file whatever it is read as.
var notFiles = []bomb{
	{"folder", folder, "not a regular file"},
	{"FIFO", fifo, "not a regular file"},
	{"device", link("/dev/zero"), "not a regular file"},
	{"link to a FIFO", func(t *testing.T, path string) { fifo(t, path+".to"); link(path+".to")(t, path) }, "not a regular file"},
	{"link to itself", func(t *testing.T, path string) { link(path)(t, path) }, "too many levels of symbolic links"},
	{"missing", missing, "no such file"},
}

var tensorBombs = append([]bomb{
	{"empty", content(""), "too short for the 8-byte header length"},
	{"seven bytes", content("\x01\x00\x00\x00\x00\x00\x00"), "too short"},
	{"claim of 2^63", content("\x00\x00\x00\x00\x00\x00\x00\x80{}"), "header length 9223372036854775808"},
	{"claim of 1 TB in 522 bytes", content(string(binary.LittleEndian.AppendUint64(nil, tbyte)) + strings.Repeat(" ", 514)), "header length 1099511627776"},
	{"claim of 100 MB", content(string(binary.LittleEndian.AppendUint64(nil, 100_000_000)) + "{}"), "header length 100000000"},
	{"header of 100 MB in a hole", sparse(string(binary.LittleEndian.AppendUint64(nil, 100_000_000))+"{", 100_000_100), "the limit for a file of 100000100 is 12500012"},
	{"1 TB of data in a hole", sparse("\x02\x00\x00\x00\x00\x00\x00\x00{}", tbyte), "must end together"},
	{"nested 10^5", tensors(strings.Repeat("[", 100_000), 0), "must start with '{'"},
	{"nested 10^5 in a field", tensors(`{"a":`+strings.Repeat(`{"b":`, 100_000), 0), "not one JSON object"},
	{"nested 10^4, closed", tensors(`{"a":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+"}", 0), `found [ where "{" must be`},
	{"mark", tensors(mark+"{"+one+"}", 4), "must start with '{'"},
	{"not UTF-8", tensors("{\"\xff\":{}}", 0), "not UTF-8"},
	{"shape of 2^62", tensors(`{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0), "overflows 63 bits"},
	{"shape that wraps to 0", tensors(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "overflows 63 bits"},
	{"shape of 10^5 numbers", tensors(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 100_000)+`1],"data_offsets":[0,1]}}`, 1), "more than 32 integers"},
	{"negative shape", tensors(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), "found -1"},
	{"shape in 1e9", tensors(`{"a":{"dtype":"U8","shape":[1e9],"data_offsets":[0,1]}}`, 1), "found 1e9"},
	{"number of 10^5 digits", tensors(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("9", 100_000)+`],"data_offsets":[0,1]}}`, 1), "2^63-1 must be"},
	{"overlap", tensors("{"+one+`,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), "must not overlap"},
	{"hole", tensors(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}}`, 5), "no holes"},
	{"offsets of 2^63-1", tensors(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807]}}`, 0), "no holes"},
	{"duplicate", tensors("{"+one+","+one+"}", 4), `duplicate key "a"`},
	{"name of 10^5", tensors(`{"`+strings.Repeat("n", 100_000)+`":{}}`, 0), "at most 1024 bytes long"},
	{"dtype of 10^5", tensors(`{"a":{"dtype":"`+strings.Repeat("F", 100_000)+`","shape":[],"data_offsets":[0,1]}}`, 1), "unknown dtype"},
}, notFiles...)

var recordBombs = append([]bomb{
	{"line of 100 MB", sparse(`{"step":{"step":1,"x":"`, 100_000_000), "metrics.jsonl:1: a line has more than"},
	{"line of 1 TB", sparse("", tbyte), "metrics.jsonl:1: a line has more than"},
	{"nested 10^5", content(`{"step":` + strings.Repeat("[", 100_000) + "\n"), "metrics.jsonl:1: offset 40: values are nested more than 32 deep"},
	{"duplicate", content(`{"step":{"step":1},"step":{"step":2}}` + "\n"), `the key "step" is there twice`},
	{"mark", content(mark + "{}\n"), "byte order mark"},
	{"not UTF-8", content("{}\xff\n"), "not UTF-8"},
	{"NUL", content("\x00\x00\n"), "metrics.jsonl:1: offset"},
	{"no key", content("{}\n"), "none of the known keys"},
	{"two keys", content(`{"done":{},"eval":{}}` + "\n"), "it has several keys"},
	{"negative step", content(`{"step":{"step":-1}}` + "\n"), "Step.Step is -1"},
	{"huge step", content(`{"step":{"step":9223372036854775808}}` + "\n"), "cannot unmarshal number"},
	{"loss of 1e999", content(`{"step":{"step":1,"loss":1e999}}` + "\n"), "cannot unmarshal number"},
	{"loss of 1e300", content(`{"step":{"step":1,"loss":1e300}}` + "\n"), "beyond 1e+100"},
	{"negative counts", content(`{"load":{"step":1,"layer":1,"tokens":[1,-9223372036854775808]}}` + "\n"), "Load.Tokens is -9223372036854775808"},
	{"name that rings", content(`{"start":{"cpu":"\u001b[2J\u0007"}}` + "\n"), "control characters"},
}, notFiles...)

var configBombs = append([]bomb{
	{"1 TB", sparse("steps = 1\n", tbyte), "expected at most 262144"},
	{"60 KB of unknown tables", content(strings.Repeat("[[a]]\n", 10_000)), `:1: unknown key "a"`},
	{"nested 10^5", content("data = " + strings.Repeat("[", 100_000)), "nested more than"},
	{"nested tables", content("mx = " + strings.Repeat("{scale = ", 20_000)), "nested more than"},
	{"key of 10^5", content(strings.Repeat("k", 100_000) + " = 1"), "unknown key"},
	{"dotted 10^5", content(strings.Repeat("mx.", 50_000) + "scale = 1"), `unknown key "mx.mx"`},
	{"value of 10^5", content("steps = '" + strings.Repeat("9", 100_000) + "'"), "steps"},
	{"mark", content(mark + "steps = 1\n"), "byte order mark"},
	{"UTF-16", content("\xff\xfes\x00t\x00"), "not UTF-8"},
	{"NUL", content("steps = 1\x00\n"), "expected newline"},
	{"duplicate", content("steps = 1\nsteps = 2\n"), "already defined"},
	{"duplicate in capitals", content("steps = 1\nSTEPS = 2\n"), `unknown key "STEPS"`},
	{"NaN", content("[optimizer]\nlr = nan\n"), "optimizer.lr is NaN"},
	{"infinity", content("[optimizer]\neps = inf\n"), "optimizer.eps is +Inf"},
	{"negative count", content("batch = -4\n"), "batch is -4"},
	{"2^63", content("batch = 9223372036854775808\n"), "too large"},
	{"2^63-1", content("batch = 9223372036854775807\n"), "give at most 16777216"},
	{"2^62 steps", content("steps = 4611686018427387904\n"), "steps is 4611686018427387904"},
	{"2^62 vocabulary", content("[model]\nvocab = 4611686018427387904\n"), "model.vocab is 4611686018427387904"},
	{"2^62 experts", content("[model]\nexperts = 4611686018427387904\n"), "model.experts is 4611686018427387904"},
}, notFiles...)

var textBombs = []bomb{
	{"empty", content(""), "is empty"},
	{"1 TB in a hole", sparse("text", tbyte), "NUL byte"},
	{"1 TB behind 10 KB of text", sparse(strings.Repeat("text", 2500), tbyte), "NUL byte"},
	{"NUL", content("te\x00xt"), "NUL byte"},
	{"FIFO", fifo, "expected a file of text"},
	{"device", link("/dev/zero"), "expected a file of text"},
	{"link to itself", func(t *testing.T, path string) { link(path)(t, path) }, "too many"},
	{"empty folder", folder, "has no files"},
	{"folder of bombs", func(t *testing.T, path string) {
		folder(t, path)
		fifo(t, filepath.Join(path, "fifo"))
		folder(t, filepath.Join(path, "sub"))
		link("..")(t, filepath.Join(path, "sub", "up"))
		sparse("text", tbyte)(t, filepath.Join(path, "sub", "hole"))
	}, "none of 1 files is a non-empty text file"},
	{"missing", missing, "no such file"},
}

// modelBombs replace one file of a good model each.
var modelBombs = map[string][]bomb{
	"config.json": append([]bomb{
		{"1 TB", sparse("{", tbyte), "expected at most 1048576"},
		{"nested 10^5", content(`{"a":` + strings.Repeat(`[`, 100_000)), "nested more than 32 deep"},
		{"duplicate", content(`{"model_type":"deepseek_v3","vocab_size":8,"vocab_size":1}`), `the key "vocab_size" is there twice`},
		{"duplicate in capitals", content(`{"vocab_size":8,"VOCAB_SIZE":1}`), `the key "VOCAB_SIZE" is there twice`},
		{"mark", content(mark + "{}"), "byte order mark"},
		{"terabytes of model", content(`{"model_type":"deepseek_v3","vocab_size":16777216,"hidden_size":131072,"num_hidden_layers":1,"first_k_dense_replace":1,
			"intermediate_size":64,"num_attention_heads":4,"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":16,"v_head_dim":32,"rope_theta":10000}`),
			"config.json describes a model of 4398"},
		{"2^62 layers", content(`{"model_type":"deepseek_v3","num_hidden_layers":4611686018427387904}`), "model.layers is 4611686018427387904"},
		{"negative heads", content(`{"model_type":"deepseek_v3","num_attention_heads":-8}`), "model.heads is -8"},
		{"epsilon of 1e999", content(`{"model_type":"deepseek_v3","rms_norm_eps":1e999}`), "rms_norm_eps: number 1e999 given"},
		{"type of 10^5", content(`{"model_type":"` + strings.Repeat("x", 100_000) + `"}`), "model_type is"},
	}, notFiles...),
	"model.safetensors": append([]bomb{{"1 TB", sparse("\x02\x00\x00\x00\x00\x00\x00\x00{}", tbyte), "must end together"}}, notFiles[:4]...),
}

// indexBombs are in the place of the index of a model in shards.
var indexBombs = append([]bomb{
	{"1 TB", sparse(`{"weight_map":{`, tbyte), "expected at most 67108864"},
	{"nested 10^5", content(`{"weight_map":` + strings.Repeat("{", 100_000)), "offset"},
	{"5000 shards", func(t *testing.T, path string) {
		var b strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&b, `,"%d":"%d.safetensors"`, i, i)
		}
		content(`{"weight_map":{`+b.String()[1:]+"}}")(t, path)
	}, "weight_map names 5000 files: expected at most 4096"},
	{"parent", content(`{"weight_map":{"a":"../../x.safetensors"}}`), "expected the name of a file in the folder"},
	{"name of 10^5", content(`{"weight_map":{"a":"` + strings.Repeat("x", 100_000) + `"}}`), "expected the name of a file in the folder"},
	{"long name", content(`{"weight_map":{"a":"` + strings.Repeat("x", 1000) + `.safetensors"}}`), "file name too long"},
	{"itself", content(`{"weight_map":{"a":"model.safetensors.index.json"}}`), "that ends in .safetensors"},
}, notFiles[:4]...)

var planBombs = append([]bomb{
	{"1 TB", sparse("seeds = 3\n", tbyte), "expected at most 262144"},
	{"60 KB of unknown tables", content(strings.Repeat("[[a]]\n", 10_000)), `unknown key "a"`},
	{"nested 10^5", content("precision = " + strings.Repeat("[", 100_000)), "nested more than"},
	{"duplicate", content("seeds = [1]\nseeds = [2]\n"), "already defined"},
	{"mark", content(mark + "seeds = 1\n"), "byte order mark"},
	{"NaN", content("margin = nan\n"), "holds a comparison in which"},
}, notFiles[:5]...)

var heapBombs = []bomb{
	{"empty", content(""), "it is not a heap"},
	{"text", content("hello"), "it is not a heap"},
	{"1 TB of zeros", sparse("", tbyte), "is not a heap of this version"},
	{"2^62 ranks", sparse("\x73\x70\x6d\x6f\x65\x31\x00\x00\x00\x00\x00\x00\x00\x00\x00\x40", 1<<20), "is not a heap of this version"},
	{"no ranks", sparse("\x73\x70\x6d\x6f\x65\x31", 1<<20), "is not a heap of this version"},
	{"folder", folder, "is a directory"},
}

// refusal is what became of a bomb, and what it took: bytes of memory, and time of processors,
// which other programs do not add to.
type refusal struct {
	err   error
	bytes uint64
	time  time.Duration
}

// setOff gives a bomb to its reader.
func setOff(read func() error) (r refusal) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := processorTime()
	r.err = read()
	r.time = processorTime() - start
	runtime.ReadMemStats(&after)
	r.bytes = after.TotalAlloc - before.TotalAlloc
	return r
}

// processorTime is how long this process has run.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Files that were made to do harm are refused by the name of the rule that they break, in little
// memory and without waiting for anyone.
func TestBombs(t *testing.T) {
	command := func(args ...string) error {
		if got := launch(args...); got.code == cli.ExitUsage {
			return fmt.Errorf("%s", got.errOut)
		} else {
			return fmt.Errorf("exit code %d: %s", got.code, got.errOut)
		}
	}
	total, worst := 0, refusal{}
	try := func(reader string, b bomb, file string, read func(path string) error) {
		t.Run(reader+"/"+b.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), file)
			b.make(t, path)
			got := setOff(func() error { return read(path) })
			switch {
			case got.err == nil:
				t.Fatal("it is accepted")
			case !strings.Contains(got.err.Error(), b.rule):
				t.Errorf("%.400v, want %q", got.err, b.rule)
			case len(got.err.Error()) > 4000:
				t.Errorf("an error of %d bytes", len(got.err.Error()))
			case got.bytes > bombMemory:
				t.Errorf("%d bytes were allocated", got.bytes)
			}
			t.Logf("%v, %d KB: %.200v", got.time, got.bytes>>10, got.err)
			total++
			worst.bytes, worst.time = max(worst.bytes, got.bytes), max(worst.time, got.time)
		})
	}
	for _, b := range tensorBombs {
		try("safetensors", b, "x.safetensors", func(path string) error {
			f, err := safetensors.Open(path)
			if err == nil {
				f.Close()
			}
			return err
		})
	}
	for _, b := range recordBombs {
		if b.name == "link to itself" { // no link is followed
			b.rule = "not a regular file"
		}
		try("record", b, record.File, func(path string) error { _, err := record.Read(filepath.Dir(path)); return err })
	}
	for _, b := range configBombs {
		try("config", b, "c.toml", func(path string) error { return command("train", "--dry-run", "--out", "none", "--config", path) })
	}
	for _, b := range planBombs {
		try("comparison", b, "plan.toml", func(path string) error { return command("compare", "--quick", "--out", filepath.Dir(path)) })
	}
	data := text(t)
	for _, b := range notFiles {
		for _, line := range []string{"schedule --file", "project --ratios", "project --hardware"} {
			try(line, b, "FILE", func(path string) error { return command(append(strings.Fields(line), path)...) })
		}
		for _, flags := range []string{"--set replay_routes=", "-np 2 --pp 2 --ep 1 --set pp_schedule=", "--tokenizer ", "--set recipe=", "--set eval_tasks="} {
			if flags == "--tokenizer " && b.name == "folder" { // of a model
				continue
			}
			try("train "+flags, b, "FILE", func(path string) error {
				return command(tiny(data, append(strings.Fields(flags+path), "--out", filepath.Join(filepath.Dir(path), "run"))...)...)
			})
		}
	}
	for _, b := range textBombs {
		try("text", b, "data.txt", func(path string) error { _, err := datasets.Open([]string{path}, datasets.Options{}); return err })
	}
	for name, bombs := range modelBombs {
		for _, b := range bombs {
			if b.name == "link to itself" && name == "config.json" { // no link is followed
				b.rule = "not a regular file"
			}
			try("model "+name, b, name, func(path string) error { return openedModel(path) })
		}
	}
	for _, b := range indexBombs {
		try("index", b, "model.safetensors.index.json", func(path string) error {
			if err := copyTo(filepath.Dir(path), goldenV3, "config.json"); err != nil {
				return err
			}
			s, err := weights.Open(filepath.Dir(path))
			if err == nil {
				s.Close()
			}
			return err
		})
	}
	for _, b := range heapBombs {
		try("heap", b, "heap", func(path string) error {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			h, err := heap.Open(file)
			if err == nil {
				h.Close()
			}
			return err
		})
	}
	t.Logf("%d bombs, at most %v and %d KB each", total, worst.time, worst.bytes>>10)
}

// copyTo copies a file to another folder.
func copyTo(dir, from, name string) error {
	in, err := os.Open(filepath.Join(from, name))
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// openedModel opens the golden model that the file at path completes: its other files are good
// ones.
func openedModel(path string) error {
	entries, err := os.ReadDir(goldenV3)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(path) {
			if err := copyTo(filepath.Dir(path), goldenV3, e.Name()); err != nil {
				return err
			}
		}
	}
	m, err := weights.OpenHuggingFace(filepath.Dir(path))
	if err == nil {
		m.Close()
	}
	return err
}
