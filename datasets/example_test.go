package datasets_test

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"spmoe/datasets"
)

// Two ranks train on a text, stop, and go on with one rank where they stood.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "alphabet.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("abcdefghijklmnopqrstuvwxyz", 40)), 0o600); err != nil {
		log.Fatal(err)
	}

	corpus, err := datasets.Open([]string{file}, datasets.Options{})
	if err != nil {
		log.Fatal(err)
	}
	tokenizer := datasets.Bytes{}
	train := datasets.Tokenize(corpus.Train, tokenizer)

	config := datasets.LoaderConfig{Seq: 16, GlobalBatch: 2, Ranks: 2, Seed: 1}
	var saved []byte
	for config.Rank = range config.Ranks {
		loader, err := datasets.NewLoader(train, config)
		if err != nil {
			log.Fatal(err)
		}
		row := make([]int32, config.Seq+1) // [GlobalBatch/Ranks, Seq+1]
		loader.Next(row)
		fmt.Printf("rank %d: %s\n", config.Rank, tokenizer.Decode(row))
		if saved, err = json.Marshal(loader.State()); err != nil {
			log.Fatal(err)
		}
	}

	config.Rank, config.Ranks = 0, 1
	loader, err := datasets.NewLoader(train, config)
	if err != nil {
		log.Fatal(err)
	}
	var state datasets.State
	if err := json.Unmarshal(saved, &state); err != nil {
		log.Fatal(err)
	}
	if err := loader.Restore(state); err != nil {
		log.Fatal(err)
	}
	rows := make([]int32, 2*(config.Seq+1))
	loader.Next(rows)
	fmt.Printf("resumed at sample %d: %s and %s\n", state.Pos, tokenizer.Decode(rows[:17]), tokenizer.Decode(rows[17:]))

	heldOut := datasets.Tokenize(corpus.HeldOut, tokenizer)
	windows, err := datasets.NewWindows(heldOut, datasets.WindowsConfig{Seq: 8, Count: 2, Ranks: 1})
	if err != nil {
		log.Fatal(err)
	}
	row := make([]int32, 9)
	for i := range windows.All(row) {
		fmt.Printf("held out %d: %s\n", i, tokenizer.Decode(row))
	}
	// Output:
	// rank 0: yzabcdefghijklmno
	// rank 1: ijklmnopqrstuvwxy
	// resumed at sample 2: wxyzabcdefghijklm and efghijklmnopqrstu
	// held out 0: ghijklmno
	// held out 1: opqrstuvw
}
