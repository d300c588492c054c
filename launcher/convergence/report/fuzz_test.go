package report

import (
	"os"
	"path/filepath"
	"testing"

	"spmoe/launcher/record"
)

// Whatever a run's record says, it is refused, or drawn and written without a number that is
// none.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"step":{"step":1,"loss":3,"grad_norm":1e100,"lr":-1e100,"imbalance":1e-300,"seconds":0}}
{"step":{"step":9007199254740992,"loss":-1e100,"grad_norm":-1,"imbalance":1e100}}
{"eval":{"step":0,"loss":1e100}}
{"load":{"step":1,"layer":1,"tokens":[]}}
{"quantised":{"step":1,"layer":0,"linear":"a\"<b>","tensor":"input","elements":3,"signal":1e100,"noise":1e-300,"saturated":4}}
{"quantised":{"step":1,"layer":65535,"linear":"","tensor":"input","elements":0,"signal":-1,"noise":1}}
{"times":{"steps":0,"seconds":1e-300,"families":{"x":1e100,"":-1}}}
`))
	f.Add([]byte("{\"step\":{\"step\":3,\"loss\":null}}\n{\"quantised\":{\"linear\":\"experts.down_proj\",\"tensor\":\"weight\",\"elements\":9223372036854775807,\"signal\":4,\"noise\":1}}\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, record.File), text, 0o666); err != nil {
			t.Fatal(err)
		}
		log, err := record.Read(dir)
		if err != nil {
			return
		}
		r := sample(sampleRecipes[:2], 1, 12)
		r.Arms[1].Runs[0].Log, r.Arms[1].Times = log, log.Times
		texts(t, r)
	})
}
