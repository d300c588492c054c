package main

// Files that were made to do harm. What their contents may be is tested where they are parsed:
// packages stricttoml, strictjson, safetensors, record, datasets and weights.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"spmoe/launcher/cli"
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

var configBombs = append([]bomb{
	{"1 TB", sparse("steps = 1\n", tbyte), "expected at most 262144"},
	{"60 KB of unknown tables", content(strings.Repeat("[[a]]\n", 10_000)), `:1: unknown key "a"`},
	{"dotted 10^5", content(strings.Repeat("mx.", 50_000) + "scale = 1"), `unknown key "mx.mx"`},
	{"value of 10^5", content("steps = '" + strings.Repeat("9", 100_000) + "'"), "steps"},
	{"NaN", content("[optimizer]\nlr = nan\n"), "optimizer.lr is NaN"},
	{"negative count", content("batch = -4\n"), "batch is -4"},
	{"2^63-1", content("batch = 9223372036854775807\n"), "give 1 to 16777216"},
	{"2^62 experts", content("[model]\nexperts = 4611686018427387904\n"), "model.experts is 4611686018427387904"},
}, notFiles...)

var textBombs = []bomb{
	{"empty", content(""), "is empty"},
	{"1 TB in a hole", sparse("text", tbyte), "to read 1 TiB of text"},
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
	}, "to read 1 TiB of text"},
	{"missing", missing, "no such file"},
}

// modelBombs replace one file of a good model each.
var modelBombs = map[string][]bomb{
	"config.json": append([]bomb{
		{"1 TB", sparse("{", tbyte), "expected at most 1048576"},
		{"terabytes of model", content(`{"model_type":"deepseek_v3","vocab_size":16777216,"hidden_size":131072,"num_hidden_layers":1,"first_k_dense_replace":1,
			"intermediate_size":64,"num_attention_heads":4,"kv_lora_rank":32,"qk_nope_head_dim":16,"qk_rope_head_dim":16,"v_head_dim":32,"rope_theta":10000}`),
			"config.json describes a model of 4398"},
		{"2^62 layers", content(`{"model_type":"deepseek_v3","num_hidden_layers":4611686018427387904}`), "model.layers is 4611686018427387904"},
		{"type of 10^5", content(`{"model_type":"` + strings.Repeat("x", 100_000) + `"}`), "model_type is"},
	}, notFiles...),
	"model.safetensors": append([]bomb{{"1 TB", sparse("\x02\x00\x00\x00\x00\x00\x00\x00{}", tbyte), "must end together"}}, notFiles[:4]...),
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

// Files that were made to do harm are refused by the name of the rule that they break, in little
// memory and without waiting for anyone.
func TestBombs(t *testing.T) {
	try := func(b bomb, name string, line ...string) {
		t.Run(strings.Join(line, " ")+" "+name+"/"+b.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, name)
			others, _ := filepath.Glob(filepath.Join(goldenV3, map[string]string{"config.json": "model.safetensors", "model.safetensors": "config.json", "model.safetensors.index.json": "config.json"}[name]))
			for _, file := range others { // the other files of the folder are good
				if text, err := os.ReadFile(file); err == nil && filepath.Base(file) != name {
					write(t, filepath.Join(dir, filepath.Base(file)), string(text))
				}
			}
			b.make(t, path)
			args := slices.Clone(line)
			for i := range args {
				args[i] = strings.NewReplacer("FILE", path, "DIR", dir).Replace(args[i])
			}
			var got outcome
			if n := allocated(func() { got = launch(args...) }); n > refusalMemory {
				t.Errorf("%d bytes were allocated", n)
			}
			if got.code != cli.ExitUsage || !strings.Contains(got.errOut, b.rule) || len(got.errOut) > 4000 {
				t.Errorf("exit code %d: %.400s, want %q", got.code, got.errOut, b.rule)
			}
		})
	}
	for _, b := range configBombs {
		try(b, "c.toml", "train", "--dry-run", "--out", "none", "--config", "FILE")
	}
	for _, b := range planBombs {
		try(b, "plan.toml", "compare", "--quick", "--out", "DIR")
	}
	for _, b := range textBombs {
		try(b, "data.txt", "train", "--data", "FILE", "--out", "DIR/run")
	}
	for name, bombs := range modelBombs {
		for _, b := range bombs {
			if rule := map[string]string{"missing": "holds no weights", "link to itself": "not a regular file"}[b.name]; name == "config.json" && rule != "" {
				b.rule = rule
			}
			try(b, name, "convert", "--from", "DIR", "--to", "DIR/x")
		}
	}
	for _, b := range indexBombs {
		try(b, "model.safetensors.index.json", "convert", "--from", "DIR", "--to", "DIR/x")
	}
	data := text(t)
	for _, b := range notFiles {
		try(b, "FILE", "project", "--hardware", "FILE")
		for _, flags := range []string{"--set replay_routes=FILE", "--tokenizer FILE", "--set recipe=FILE"} {
			if flags != "--tokenizer FILE" || b.name != "folder" { // of a model
				try(b, "FILE", tiny(data, append(strings.Fields(flags), "--out", "DIR/run")...)...)
			}
		}
	}
}
