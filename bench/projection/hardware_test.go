package projection

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// description returns a hardware file of the program.
func description(t testing.TB, name string) []byte {
	t.Helper()
	text, err := fs.ReadFile(files, "data/hardware/"+name+".json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestHardwareFiles(t *testing.T) {
	want := []string{"B200", "B300", "GB200", "GB300", "H100", "H200", "H800", "MI325X", "MI355X"}
	if got := GPUs(); !slices.Equal(got, want) {
		t.Errorf("hardware of %v, want %v", got, want)
	}
	for _, x := range []struct {
		name                        string
		bf16, fp8, memory, hbm, nvl float64
	}{
		{"B200", 2250, 4500, 180, 7.7, 900}, {"gb200", 2450, 4900, 186, 8, 900}, {"H100", 989, 1979, 80, 3.35, 450}, {"h800", 989, 1979, 80, 3.35, 200}, {"MI355X", 2500, 5000, 288, 8, 538},
	} {
		h, err := HardwareByName(x.name)
		if err != nil {
			t.Fatal(err)
		}
		if h.BF16.Value != x.bf16 || h.FP8.Value != x.fp8 || h.Memory.Value != x.memory || h.HBM.Value != x.hbm || h.NVLink.Value != x.nvl {
			t.Errorf("%s: %+v", x.name, h)
		}
	}
	if _, err := HardwareByName("V100"); err == nil || !strings.Contains(err.Error(), "B200, B300, GB200") {
		t.Errorf("an unknown GPU gives %v", err)
	}
}

// A file without a field, or with one that cannot be, is refused by that field's name.
func TestHardwareFields(t *testing.T) {
	var whole map[string]any
	if err := json.Unmarshal(description(t, "b200"), &whole); err != nil {
		t.Fatal(err)
	}
	for field := range whole {
		if field == "about" {
			continue
		}
		for what, value := range map[string]any{"missing": nil, "empty": "", "negative": map[string]any{"value": -1, "unit": "x", "source": "y", "kind": "published"}} {
			changed := map[string]any{}
			for k, v := range whole {
				changed[k] = v
			}
			if changed[field] = value; value == nil {
				delete(changed, field)
			}
			text, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseHardware("some.json", text)
			if err == nil || !strings.HasPrefix(err.Error(), "some.json: ") || what == "missing" && !strings.Contains(err.Error(), "field "+field+" ") {
				t.Errorf("%s %s: %v", field, what, err)
			}
		}
	}
}

// Whatever a hardware file holds, it is an error or a description that can be computed with.
func FuzzParseHardware(f *testing.F) {
	for _, name := range []string{"b200", "h800"} {
		f.Add(description(f, name))
	}
	f.Add([]byte(`{"name":"x","bf16_tflops":{"value":1e400}}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ParseHardware("fuzz.json", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.json: ") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		r := Target()
		r.Hardware, r.GPU = &h, h.Name
		e, err := newChecked(r, Central())
		if err != nil {
			t.Fatal(err)
		}
		c := e.total()
		if sum := c.sum(); !(sum > 0) {
			t.Errorf("%g ms per token with %s", sum, text)
		}
	})
}

// Every number of every data file has its unit, source and kind, and files that lack something are
// not read.
func TestDataFiles(t *testing.T) {
	list, err := fs.Glob(files, "data/hardware/*.json")
	if err != nil {
		t.Fatal(err)
	}
	copied := fstest.MapFS{}
	for _, name := range append(list, "data/h200.json", "data/kernels_b200.json", "data/models.json", "data/parameters.json", "data/published.json", "data/effects.json") {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		copied[name] = &fstest.MapFile{Data: text}
	}
	if _, err := readContents(copied); err != nil {
		t.Fatal(err)
	}
	for _, change := range []struct{ file, from, to string }{
		{"data/parameters.json", `"dist": "triangle"`, `"dist": "bell"`},
		{"data/parameters.json", `"attention": "cudnn"`, `"attention": "none"`},
		{"data/kernels_b200.json", `"share": [`, `"share": [1, `},
		{"data/hardware/b200.json", `"watts"`, `"wats"`},
		{"data/published.json", `"rows"`, `"rows": [], "rows"`},
	} {
		whole := copied[change.file].Data
		broken := bytes.Replace(whole, []byte(change.from), []byte(change.to), 1)
		if bytes.Equal(broken, whole) {
			t.Fatalf("%s has no %s", change.file, change.from)
		}
		copied[change.file] = &fstest.MapFile{Data: broken}
		if _, err := readContents(copied); err == nil || !strings.Contains(err.Error(), path.Base(change.file)) {
			t.Errorf("%s with %s: %v", change.file, change.to, err)
		}
		copied[change.file] = &fstest.MapFile{Data: whole}
	}
	for _, r := range Rows() {
		if r.Source == "" || r.Published <= 0 {
			t.Errorf("row %s: %+v", r.ID, r)
		}
	}
}
