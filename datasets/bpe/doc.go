// Package bpe provides byte-level BPE tokenizers. It reads and writes Hugging Face's
// tokenizer.json, knows OpenAI's tiktoken encodings, and trains new tokenizers.
//
// Encoding has four steps. NUL bytes and added tokens are cut out of the text. The text between
// them is normalized, if the tokenizer asks for it. Patterns split it into pieces, about a word
// each. In each piece, the adjacent tokens whose merge has the lowest rank are joined, the leftmost
// first, until none can be joined. A piece starts as its bytes, so every text has ids.
//
// Patterns are defined over Unicode characters, by Go's tables; other libraries may have newer
// ones. A byte that belongs to no character is matched like U+FFFD, and stays itself in the ids.
// Decoding restores any bytes, unless the tokenizer normalizes, adds a space or removes what it
// splits at.
package bpe
