package main

// Files that were made to do harm. What their contents may be is tested where they are parsed:
// packages stricttoml, strictjson, safetensors, record, datasets and weights.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"spmoe/collective/heap"
	"spmoe/datasets"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/cli"
	"spmoe/launcher/golden"
	"spmoe/launcher/record"
	"spmoe/launcher/weights"
)

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

// tbyte is a size that no reader may believe.
const tbyte = 1 << 40

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
	{"shape that wraps to 0", content("\x57\x00\x00\x00\x00\x00\x00\x00" + `{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}               `), "overflows 63 bits"},
	{"1 TB of data in a hole", sparse("\x02\x00\x00\x00\x00\x00\x00\x00{}", tbyte), "must end together"},
}, notFiles...)

var recordBombs = append([]bomb{
	{"1 TB", sparse("", tbyte), "metrics.jsonl:1: a line has more than"},
	{"nested 10^5", content(`{"step":` + strings.Repeat("[", 100_000) + "\n"), "metrics.jsonl:1: offset 40: values are nested more than 32 deep"},
}, notFiles...)

var configBombs = append([]bomb{
	{"1 TB", sparse("steps = 1\n", tbyte), "expected at most 262144"},
	{"60 KB of unknown tables", content(strings.Repeat("[[a]]\n", 10_000)), `:1: unknown key "a"`},
	{"dotted 10^5", content(strings.Repeat("mx.", 50_000) + "scale = 1"), `unknown key "mx.mx"`},
	{"value of 10^5", content("steps = '" + strings.Repeat("9", 100_000) + "'"), "steps"},
	{"NaN", content("[optimizer]\nlr = nan\n"), "optimizer.lr is NaN"},
	{"negative count", content("batch = -4\n"), "batch is -4"},
	{"2^63-1", content("batch = 9223372036854775807\n"), "give at most 16777216"},
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

// goldenBombs replace one file of a good folder each.
var goldenBombs = map[string][]bomb{
	"config.json": append([]bomb{
		{"1 TB", sparse("{", tbyte), "expected at most 1048576"},
		{"terabytes of model", content(`{"model_type":"deepseek_v3","vocab_size":16777216,"hidden_size":131072,"num_hidden_layers":1,"first_k_dense_replace":1,
			"intermediate_size":64,"num_attention_heads":4,"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":16,"v_head_dim":32,"rope_theta":10000}`),
			"config.json describes a model of 4398"},
		{"2^62 layers", content(`{"model_type":"deepseek_v3","num_hidden_layers":4611686018427387904}`), "model.layers is 4611686018427387904"},
		{"type of 10^5", content(`{"model_type":"` + strings.Repeat("x", 100_000) + `"}`), "model_type is"},
	}, notFiles...),
	"model.safetensors": append([]bomb{{"1 TB", sparse("\x02\x00\x00\x00\x00\x00\x00\x00{}", tbyte), "must end together"}}, notFiles[:4]...),
	"train_trajectory.json": append([]bomb{
		{"1 TB", sparse("{", tbyte), "expected at most 4194304"},
		{"no steps", content(`{"steps":[]}`), "has no steps"},
	}, notFiles[:5]...),
}

// indexBombs are in the place of the index of a model in shards.
var indexBombs = append([]bomb{
	{"1 TB", sparse(`{"weight_map":{`, tbyte), "expected at most 67108864"},
	{"5000 shards", func(t *testing.T, path string) {
		var b strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&b, `,"%d":"%d.safetensors"`, i, i)
		}
		content(`{"weight_map":{`+b.String()[1:]+"}}")(t, path)
	}, "weight_map names 5000 files: expected at most 4096"},
}, notFiles[:4]...)

var planBombs = append([]bomb{
	{"1 TB", sparse("seeds = 3\n", tbyte), "expected at most 262144"},
	{"NaN", content("margin = nan\n"), "holds a comparison in which"},
}, notFiles[:5]...)

var heapBombs = []bomb{
	{"empty", content(""), "it is not a heap"},
	{"1 TB of zeros", sparse("", tbyte), "is not a heap of this version"},
	{"folder", folder, "is a directory"},
}

// opened is the error of a reader whose file, if there is one, is closed again.
func opened[F io.Closer](file F, err error) error {
	if err == nil {
		file.Close()
	}
	return err
}

// Files that were made to do harm are refused by the name of the rule that they break, in little
// memory and without waiting for anyone.
func TestBombs(t *testing.T) {
	try := func(reader string, b bomb, file string, read func(path string) error) {
		t.Run(reader+"/"+b.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), file)
			b.make(t, path)
			var err error
			if n := allocated(func() { err = read(path) }); n > refusalMemory {
				t.Errorf("%d bytes were allocated", n)
			}
			if err == nil || !strings.Contains(err.Error(), b.rule) || len(err.Error()) > 4000 {
				t.Errorf("%.400v, want %q", err, b.rule)
			}
		})
	}
	for _, b := range tensorBombs {
		try("safetensors", b, "x.safetensors", func(path string) error { return opened(safetensors.Open(path)) })
		try("MX reference", b, "x.safetensors", func(path string) error { _, err := golden.CheckMX(path); return err })
	}
	for _, b := range recordBombs {
		if b.name == "link to itself" { // no link is followed
			b.rule = "not a regular file"
		}
		try("record", b, record.File, func(path string) error { _, err := record.Read(filepath.Dir(path)); return err })
	}
	for _, b := range textBombs {
		try("text", b, "data.txt", func(path string) error { _, err := datasets.Open([]string{path}, datasets.Options{}); return err })
	}
	for name, bombs := range goldenBombs {
		for _, b := range bombs {
			try("golden "+name, b, name, func(path string) error { return openedFolder(path) })
		}
	}
	for _, b := range indexBombs {
		try("index", b, "model.safetensors.index.json", func(path string) error {
			if err := copyTo(filepath.Dir(path), goldenV3, "config.json"); err != nil {
				return err
			}
			return opened(weights.Open(filepath.Dir(path)))
		})
	}
	for _, b := range heapBombs {
		try("heap", b, "heap", func(path string) error {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			return opened(heap.Open(file))
		})
	}

	command := func(args ...string) error {
		if got := launch(args...); got.code == cli.ExitUsage {
			return errors.New(got.errOut)
		} else {
			return fmt.Errorf("exit code %d: %s", got.code, got.errOut)
		}
	}
	for _, b := range configBombs {
		try("config", b, "c.toml", func(path string) error { return command("train", "--dry-run", "--out", "none", "--config", path) })
	}
	for _, b := range planBombs {
		try("comparison", b, "plan.toml", func(path string) error { return command("compare", "--quick", "--out", filepath.Dir(path)) })
	}
	data := text(t)
	for _, b := range notFiles {
		for _, flag := range []string{"--ratios", "--hardware"} {
			try("project "+flag, b, "FILE", func(path string) error { return command("project", flag, path) })
		}
		for _, flags := range []string{"--set replay_routes=", "-np 2 --pp 2 --ep 1 --set pp_schedule=", "--tokenizer ", "--set recipe="} {
			if flags == "--tokenizer " && b.name == "folder" { // of a model
				continue
			}
			try("train "+flags, b, "FILE", func(path string) error {
				return command(tiny(data, append(strings.Fields(flags+path), "--out", filepath.Join(filepath.Dir(path), "run"))...)...)
			})
		}
	}
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

// openedFolder opens the golden folder that the file at path completes: its other files are good
// ones.
func openedFolder(path string) error {
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
	f, err := golden.Open(filepath.Dir(path))
	if err == nil {
		f.Close()
	}
	return err
}
