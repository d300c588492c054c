package reference

import (
	"os"
	"path/filepath"
	"testing"
)

// A config.json that is accepted lists modules whose parameters have dimensions.
func FuzzReadConfig(f *testing.F) {
	for _, family := range families {
		data, err := os.ReadFile(filepath.Join(goldens, family, "config.json"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ReadConfig(data)
		if err != nil {
			return
		}
		for _, m := range c.Modules() {
			for _, name := range m.Params {
				if dims, ok := c.ParamDims(name); !ok || len(dims) == 0 || min(dims[0], dims[len(dims)-1]) < 1 {
					t.Fatalf("%s has dimensions %v", name, dims)
				}
			}
		}
	})
}
