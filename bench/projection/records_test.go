package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// Predictions are records: they stay what they were before their results were opened.
func TestRecords(t *testing.T) {
	for name, want := range map[string]string{
		"predictions.json":   "767bdd6f0fe12bed41723039f74c46fafb140a61804e986ea71518876c95fdcc",
		"predictions-2.json": "ec7746bc7c1a179fc05ff71a74ad529109192678aa369963620cd63f4dd9959c",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has changed: it must stay what it was before its results were opened", name)
		}
		var file struct {
			Rows []struct {
				ID        string
				Tokens    float64 `json:"tokens_per_s_per_gpu"`
				Low, High float64
			}
		}
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		for _, r := range file.Rows {
			if !(0 < r.Low && r.Low < r.Tokens && r.Tokens < r.High) {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if len(file.Rows) != 110 {
			t.Errorf("%s has %d rows", name, len(file.Rows))
		}
	}
}
