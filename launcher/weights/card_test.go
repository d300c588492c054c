package weights

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"spmoe/datasets"
	"spmoe/launcher/record"
)

// An exported run says what it is and how it was trained, in Markdown that no name breaks, and
// names its special tokens as the library expects them.
func TestCard(t *testing.T) {
	dir, _ := run(t, 1)
	w, err := record.Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 9; step++ { // the checkpoint is of step 7
		w.Step(record.Step{Step: step, Loss: record.Number(10 - float64(step))})
	}
	w.Eval(record.Eval{Step: 5, Loss: 4.25})
	w.Eval(record.Eval{Step: 7, Loss: record.Number(math.NaN())})
	w.Eval(record.Eval{Step: 9, Loss: 1})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s := opened(t, dir)
	s.run = []byte("flavor = 'debug'\nsteps = 100\nseq = 128\nbatch = 16\nprecision = 'mxfp8|bf16'\ndata = ['/home/me/secret/corpus`.jsonl@0.7', 'b<c', 'hf:org/stories/train@0.3']\n")
	to := filepath.Join(t.TempDir(), "to")
	if _, err := s.Convert(t.Context(), to, Options{DType: "fp32"}); err != nil {
		t.Fatal(err)
	}
	card := string(readFile(t, filepath.Join(to, cardName)))
	for _, want := range []string{
		"---\nlibrary_name: transformers\n", "\n# debug model\n", "| weights | float32 |", "| steps | 7 of 100 |", "| tokens | 14336 |", "| batch | 16 sequences of 128 tokens |",
		"| precision | mxfp8 bf16 |", "| data | `corpus .jsonl@0.7`, `b&lt;c`, `hf:org/stories/train@0.3` |", "| training, mean of the last steps | 6.0000 |", "| validation | 4.2500 after step 5 |",
		`AutoModelForCausalLM.from_pretrained(".")`,
	} {
		if !strings.Contains(card, want) {
			t.Errorf("the card lacks %q:\n%s", want, card)
		}
	}
	if strings.Contains(card, "secret") {
		t.Error("the card tells where the data was")
	}

	tokenizer, err := datasets.OpenTokenizer(filepath.Join(to, datasets.TokenizerFile))
	if err != nil {
		t.Fatal(err)
	}
	eos := tokenizer.Encode([]byte{0})
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		var file struct {
			EOS string `json:"eos_token"`
			Pad string `json:"pad_token"`
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(to, name)), &file); err != nil || file.EOS != "Ā" || file.Pad != file.EOS {
			t.Errorf("%s has %+v (%v)", name, file, err)
		}
	}
	if token, ok := spelling(readFile(t, filepath.Join(to, datasets.TokenizerFile)), eos[0]); len(eos) != 1 || !ok || token != "Ā" {
		t.Errorf("the end of a text is %v, %q", eos, token)
	}
	if token, ok := spelling([]byte(`{"added_tokens":[{"id":7,"content":"<|end|>"}],"model":{"vocab":{"x":7}}}`), 7); !ok || token != "<|end|>" {
		t.Errorf("an added token is %q (%t)", token, ok)
	}

	// What is copied from a Hugging Face folder keeps its card.
	again := filepath.Join(t.TempDir(), "again")
	if _, err := opened(t, to).Convert(t.Context(), again, Options{}); err != nil {
		t.Fatal(err)
	}
	if string(readFile(t, filepath.Join(again, cardName))) != card {
		t.Error("the card was not copied")
	}
}
