package datasets

// The beginnings of documents in packed rows.

import "fmt"

// Separator returns the id that ends a document in a [Stream] of tokenizer t. It returns an error
// if documents end with several tokens.
func Separator(t Tokenizer) (int32, error) {
	ids := t.Encode([]byte{separator})
	if len(ids) != 1 {
		return 0, fmt.Errorf("tokenizer %q ends a document with %d tokens: expected one, such as <|endoftext|>", t.Name(), len(ids))
	}
	return ids[0], nil
}

// DocumentStarts sets first, [rows, seq], to the position in its row at which the document of each
// token begins: after the last separator before it, or 0. The separator itself belongs to the
// document that it ends. inputs: [rows, seq].
func DocumentStarts(first, inputs []int32, seq int, separator int32) {
	first = first[:len(inputs)]
	begin := int32(0)
	for i, id := range inputs {
		at := int32(i % seq)
		if at == 0 {
			begin = 0
		}
		first[i] = begin
		if id == separator {
			begin = at + 1
		}
	}
}
