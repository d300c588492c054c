package bpe_test

import (
	"context"
	"fmt"
	"slices"

	"spmoe/datasets/bpe"
)

// An encoding of OpenAI's, without a download.
func ExampleTiktoken() {
	t, err := bpe.Tiktoken("cl100k_base")
	if err != nil {
		panic(err)
	}
	ids := t.Encode([]byte("tiktoken is great!"))
	fmt.Println(ids)
	fmt.Printf("%s\n", t.Decode(ids))
	// Output:
	// [83 1609 5963 374 2294 0]
	// tiktoken is great!
}

// A tokenizer for a text of one's own.
func ExampleTrain() {
	texts := [][]byte{[]byte("low lower lowest"), []byte("new newer newest")}
	t, err := bpe.Train(context.Background(), slices.Values(texts), bpe.MinVocab+8)
	if err != nil {
		panic(err)
	}
	for _, id := range t.Encode([]byte("low newest")) {
		fmt.Printf("%q ", t.Decode([]int32{id}))
	}
	// Output: "lo" "w" " ne" "west"
}
