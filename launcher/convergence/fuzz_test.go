package convergence

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
)

// Whatever plan.toml holds, it is refused, or what differs from this comparison is named.
func FuzzPlan(f *testing.F) {
	c := tiny(f, "unread", 40, "bf16,mxfp8")
	mine, err := c.plan()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(mine)
	f.Add([]byte("seeds = [1, 2]\nmargin = nan\n[config]\nsteps = 7\n[config.model]\nlayers = 2\n[tests]\nlooks = [2, 3]\n"))
	f.Add([]byte("precision = ['bf16', 3]\nconfig = {mx = {scale = 'x'}}\n"))
	here, err := flatten(mine)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		there, err := flatten(text)
		if err != nil {
			return
		}
		if what := firstDifference(there, here); what == "" {
			if again := firstDifference(here, there); again != "" {
				t.Errorf("%q: nothing differs, and back %s", text, again)
			}
		}
	})
}

// Whatever a run's record says, it is refused, or the comparison of its run with itself and with
// another has a result that can be written.
func FuzzCompare(f *testing.F) {
	f.Add([]byte(`{"step":{"step":1,"loss":3,"seconds":0}}
{"step":{"step":20,"loss":2.5,"seconds":1e-300}}
{"choices":{"step":1,"layer":1,"top_k":2,"experts":"AAEAAgADAAQA"}}
{"load":{"step":1,"layer":1,"tokens":[]}}
{"quantised":{"step":1,"layer":0,"linear":"a","tensor":"input","elements":3,"signal":1e100,"noise":null}}
{"done":{"step":40,"held_out_loss":1e100}}
`))
	f.Add([]byte("{\"done\":{\"step\":40,\"held_out_loss\":null,\"skipped\":9223372036854775807}}\n"))
	dir, c := f.TempDir(), tiny(f, "unread", 40, "bf16,mxfp8")
	c.Design = design.Fixed(0.005, 2)
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, record.File), text, 0o666); err != nil {
			t.Fatal(err)
		}
		log, err := record.Read(dir)
		if err != nil {
			if !strings.Contains(err.Error(), record.File) || len(err.Error()) > 2000 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		tasks := c.tasks()
		other := &record.Log{Steps: []record.Step{{Step: 1, Loss: 2, Seconds: 1}}, Done: &record.Done{Step: 40, HeldOut: 2}}
		logs := []*record.Log{other, log, other, log}
		if log.Done == nil { // a run that has not ended is not compared
			return
		}
		r, err := c.compare(tasks, logs)
		if err != nil {
			t.Fatal(err)
		}
		WriteSummary(io.Discard, r)
		pageData(t, r)
		if _, err := json.Marshal(log); err != nil {
			t.Error(err)
		}
	})
}

// Whatever recipes are asked for, they are refused, or their names are those of folders of the
// comparison.
func FuzzParseRecipes(f *testing.F) {
	f.Add("bf16,mxfp8-wgrad-bf16+e5m2+floor+wire")
	f.Add("../bf16,,mxfp8+,mxfp8+e5m2,mxfp8+e5m2")
	f.Fuzz(func(t *testing.T, names string) {
		recipes, err := ParseRecipes(names)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, r := range recipes {
			if !filepath.IsLocal(r.Name) || filepath.Base(r.Name) != r.Name || seen[r.Name] {
				t.Errorf("%q: a recipe %q", names, r.Name)
			}
			seen[r.Name] = true
		}
	})
}
