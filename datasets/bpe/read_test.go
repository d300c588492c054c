package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// small is the tokenizer.json of a tokenizer with a vocabulary of 500.
func small(t testing.TB) []byte {
	return must(must(Train(t.Context(), lines(trainingText()), 500)).JSON())
}

// changed returns a tokenizer.json with other values, given as JSON, at some of its keys, such as
// "model.type".
func changed(t testing.TB, data []byte, values map[string]string) []byte {
	t.Helper()
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	var model map[string]json.RawMessage
	if err := json.Unmarshal(top["model"], &model); err != nil {
		t.Fatal(err)
	}
	for key, value := range values {
		if name, ok := bytes.CutPrefix([]byte(key), []byte("model.")); ok {
			model[string(name)] = json.RawMessage(value)
		} else {
			top[key] = json.RawMessage(value)
		}
	}
	if _, ok := values["model"]; !ok {
		top["model"] = must(json.Marshal(model))
	}
	return must(json.Marshal(top))
}

// Hugging Face's tokenizers, version 0.22, gave the same ids of the same texts, with special tokens
// taken as such, for each way to cut text, normalize it, and add tokens.
func TestReadAgainstHuggingFace(t *testing.T) {
	var golden struct {
		Texts      []string
		Tokenizers []struct {
			Name   string
			Change map[string]json.RawMessage
			IDs    [][]int32
		}
	}
	if err := json.Unmarshal(must(os.ReadFile("testdata/ids-huggingface.json")), &golden); err != nil {
		t.Fatal(err)
	}
	data := small(t)
	for _, g := range golden.Tokenizers {
		values := map[string]string{}
		for key, value := range g.Change {
			values[key] = string(value)
		}
		own, err := Parse(changed(t, data, values))
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		for i, text := range golden.Texts {
			if got := own.EncodeSpecial([]byte(text)); !slices.Equal(got, g.IDs[i]) {
				t.Errorf("%s of %q: %v, want %v", g.Name, text, got, g.IDs[i])
			}
		}
	}
}

// What is not a byte-level BPE, or cannot be one, is refused, and the error says what it is.
func TestParseErrors(t *testing.T) {
	data := small(t)
	byteLevel := `{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}`
	for want, values := range map[string]map[string]string{
		`model: type "Unigram" is not supported: expected BPE`:                     {"model.type": `"Unigram"`},
		"model: byte_fallback is not supported":                                    {"model.byte_fallback": "true"},
		"model: dropout is 0.1: expected none":                                     {"model.dropout": "0.1"},
		`end_of_word_suffix "</w>" are not supported`:                              {"model.end_of_word_suffix": `"</w>"`},
		"model: it has no vocab":                                                   {"model.vocab": "{}"},
		"has no token for byte 0x00":                                               {"model.vocab": `{"a":0}`, "model.merges": "[]"},
		`token "▁a" of id 0 is not spelled in the characters of a byte-level BPE`:  {"model.vocab": `{"▁a":0}`},
		`token "a" has id -1: expected one from 0 to 65536`:                        {"model.vocab": `{"a":-1}`},
		`token "a" has id 65537`:                                                   {"model.vocab": `{"a":65537}`},
		"two tokens have id 3":                                                     {"model.vocab": `{"a":3,"b":3}`},
		`merge 0 joins "東" and "x": they or the result are not in the vocab`:       {"model.merges": `["東 x"]`},
		"merge 0 has 3 tokens: expected 2":                                         {"model.merges": `[["a","b","c"]]`},
		`merge 0 is "a b c": expected two tokens`:                                  {"model.merges": `["a b c"]`},
		"merges: expected a list of texts":                                         {"model.merges": `"a b"`},
		`normalizer: type "NFKC" is not supported: expected NFC or none`:           {"normalizer": `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"NFKC"}]}`},
		`pre_tokenizer: type "Metaspace" is not supported: expected Split, Digits`: {"pre_tokenizer": `{"type":"Metaspace"}`},
		"pre_tokenizer: it has no ByteLevel at its end":                            {"pre_tokenizer": "null"},
		`pre_tokenizer: "Digits" after ByteLevel is not supported`:                 {"pre_tokenizer": `{"type":"Sequence","pretokenizers":[` + byteLevel + `,{"type":"Digits"}]}`},
		`Split: behavior "Kept": expected one of [Isolated Removed`:                {"pre_tokenizer": `{"type":"Split","behavior":"Kept"}`},
		"Split: expected a pattern: a Regex, or a String that is not empty":        {"pre_tokenizer": `{"type":"Split","behavior":"Removed","pattern":{"String":""}}`},
		`Split: pattern "(?=a)" is not supported`:                                  {"pre_tokenizer": `{"type":"Split","behavior":"Removed","pattern":{"Regex":"(?=a)"}}`},
		`decoder: type "WordPiece" is not supported: expected ByteLevel`:           {"decoder": `{"type":"Sequence","decoders":[{"type":"WordPiece"}]}`},
		"added token 500 is empty":                                                 {"added_tokens": `[{"id":500,"content":""}]`},
		`added token "x" has id 66037: expected one from 0 to 66036`:               {"added_tokens": `[{"id":66037,"content":"x"}]`},
		`added token "x" has id 0, which is that of "<|endoftext|>"`:               {"added_tokens": `[{"id":0,"content":"x"}]`},
		`added token "x": single_word is not supported`:                            {"added_tokens": `[{"id":500,"content":"x","single_word":true}]`},
		"model.vocab is a JSON number 1.5: expected another type":                  {"model.vocab": `{"a":1.5}`},
		"byte 1: pre_tokenizer is a JSON number: expected another type":            nil,
		"byte 2: invalid character":                                                nil,
	} {
		text := changed(t, data, values)
		switch want[:6] {
		case "byte 1":
			text, want = []byte(`{"pre_tokenizer":1}`), "pre_tokenizer is a JSON number: expected another type"
		case "byte 2":
			text = []byte("{x")
		}
		_, err := Parse(text)
		if err == nil {
			t.Errorf("no error that says %q", want)
			continue
		}
		wantError(t, err, want)
	}
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(path, []byte("[]"), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	wantError(t, err, path, "JSON array")
}

// The token that ends a document is found by its name; without one it is the byte.
func TestEndOfDocument(t *testing.T) {
	data := small(t)
	for added, want := range map[string]int32{
		`[]`: -1,
		`[{"id":500,"content":"</s>","special":true},{"id":501,"content":"<｜end▁of▁sentence｜>","special":true}]`: 501,
		`[{"id":500,"content":"</s>","special":false}]`:                                                          -1,
		`[{"id":0,"content":"<|endoftext|>","special":true},{"id":501,"content":"</s>","special":true}]`:         0,
	} {
		own := must(Parse(changed(t, data, map[string]string{"added_tokens": added})))
		if want < 0 {
			want = own.bytes[0]
		}
		ids := own.Encode([]byte("ta\x00"))
		if got := ids[len(ids)-1]; got != want {
			t.Errorf("%s: a document ends with %d, want %d", added, got, want)
		}
		if back := own.Decode(ids); string(back) != "ta\x00" {
			t.Errorf("%s: %q", added, back)
		}
	}
}

// Added tokens whose characters are also the spelling of bytes, as add_tokens of Hugging Face's
// tokenizers writes them: "é" has the id of byte 0xe9, and "Ã©" that of the merged bytes of "é".
// The ids are those of @huggingface/tokenizers.
func TestAddedTokensThatSpellBytes(t *testing.T) {
	data := small(t)
	plain := must(Parse(data))
	vocab := map[string]int32{}
	for id, token := range plain.tokens {
		vocab[spell(token)] = int32(id)
	}
	merged := string([]rune{alphabet[0xc3], alphabet[0xa9]})
	vocab[merged] = int32(len(plain.tokens))
	vocab["naïve"] = vocab[merged] + 1
	added := must(json.Marshal([]addedToken{{ID: vocab["é"], Content: "é"}, {ID: vocab["£"], Content: "£"}, {ID: vocab[merged], Content: merged}, {ID: vocab["naïve"], Content: "naïve"}, {ID: 600, Content: "ÿþ"}}))
	own, err := Parse(changed(t, data, map[string]string{"model.vocab": string(must(json.Marshal(vocab))), "model.merges": `[["Ã","©"]]`, "added_tokens": string(added)}))
	if err != nil {
		t.Fatal(err)
	}
	b := own.bytes
	for text, want := range map[string][]int32{
		"café é": {b['c'], b['a'], b['f'], vocab["é"], b[' '], vocab["é"]},
		"£5":     {vocab["£"], b['5']},
		"naïve":  {vocab["naïve"]},
		"ÿþ":     {600},
		"鍵":      {b[0xe9], b[0x8d], b[0xb5]},
		"Ã©":     {vocab[merged]},
	} {
		if got := own.Encode([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for text, id := range map[string]int32{"\xe9": vocab["é"], "é": vocab[merged], "naïve": vocab["naïve"], "ÿþ": 600} {
		if got := own.Decode([]int32{id}); string(got) != text {
			t.Errorf("%d is %q, want %q", id, got, text)
		}
	}
}

// Another token can end documents, whatever its name. It gives the tokenizer another name.
func TestSetEnd(t *testing.T) {
	data := small(t)
	added := map[string]string{"added_tokens": `[{"id":0,"content":"<|endoftext|>","special":true},{"id":500,"content":"[EOS]","special":true}]`}
	byName, own := must(Parse(changed(t, data, added))), must(Parse(changed(t, data, added)))
	if err := own.SetEnd("[EOS]", ""); err != nil {
		t.Fatal(err)
	}
	if ids := own.Encode([]byte("\x00")); !slices.Equal(ids, []int32{500}) || own.Name() != byName.Name()+"+end500" || string(own.Decode(ids)) != "\x00" {
		t.Errorf("%s: %v", own.Name(), ids)
	}
	if err := byName.SetEnd(EndOfText, ""); err != nil || byName.Name() != must(Parse(changed(t, data, added))).Name() {
		t.Errorf("%s, %v", byName.Name(), err)
	}
	if err := own.SetEnd("the", ""); err == nil && own.end == 500 {
		t.Error("a token of the vocabulary does not end documents")
	}
	if err := own.SetEnd("Ā", ""); err != nil || own.end != own.bytes[0] {
		t.Errorf("the byte NUL as it is spelled: %d, %v", own.end, err)
	}
	wantError(t, own.SetEnd("no such token", ""), `no token "no such token"`)
	wantError(t, own.SetEnd("", ""), "no token")
}

// FuzzParse: any file is refused, or is a tokenizer that encodes any text into its own ids.
func FuzzParse(f *testing.F) {
	data := must(must(Train(f.Context(), lines(trainingText()), 300)).JSON())
	f.Add(data, []byte("ta 東\x00"))
	f.Add(must(Bytes()), []byte{0xff})
	f.Add(changed(f, data, map[string]string{"added_tokens": `[{"id":299,"content":"Ã©"},{"id":300,"content":"é"}]`}), []byte("é Ã©"))
	for _, values := range []map[string]string{
		{"pre_tokenizer": `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"Split","pattern":{"Regex":"a+|\\s+(?!\\S)|\\s+"},"behavior":"MergedWithNext","invert":true},{"type":"ByteLevel"}]}`},
		{"normalizer": `{"type":"NFC"}`, "added_tokens": `[{"id":299,"content":"a","lstrip":true,"rstrip":true}]`},
	} {
		f.Add(changed(f, data, values), []byte(" a \x80 12"))
	}
	rng := rand.New(rand.NewPCG(4, 4))
	for range 4 {
		at := rng.IntN(len(data))
		f.Add(slices.Concat(data[:at], []byte(fmt.Sprint(rng.IntN(1e6))), data[at:]), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, data, text []byte) {
		own, err := Parse(data)
		if err != nil {
			return
		}
		for _, id := range own.EncodeSpecial(text) {
			if id < 0 || int(id) >= own.VocabSize() {
				t.Fatalf("id %d of %d", id, own.VocabSize())
			}
			own.Decode([]int32{id})
		}
		if again, err := own.JSON(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("it is not kept as it was: %v", err)
		}
	})
}
