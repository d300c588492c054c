// Package bpe holds byte-level BPE tokenizers: it reads and writes the tokenizer.json of Hugging
// Face, knows the tiktoken encodings of OpenAI, and trains new ones.
//
// Encoding takes four steps. NUL bytes and added tokens are cut out of the text; what is between
// them is normalized, where the tokenizer asks for it; patterns cut it into pieces, about a word
// each; and in each piece the neighbours whose merge has the lowest rank are joined, the leftmost
// first, until none can be. A piece starts as its bytes, so every text has ids.
//
// Patterns are defined over Unicode characters, by the tables of Go: other libraries may know newer
// ones. A byte that belongs to no character counts as U+FFFD would, and stays itself in the ids:
// decoding gives back any bytes, unless the tokenizer normalizes, adds a space or removes what it
// splits at.
package bpe
