package bpe

// The spelling of bytes in vocabulary files: each byte has a printable character, as in GPT-2's
// vocab.json.

// alphabet holds the character of each byte: its own if it is printable in Latin-1, otherwise one
// from U+0100 on.
var alphabet = func() (chars [256]rune) {
	next := rune(256)
	for b := range rune(256) {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b && b <= 0xFF {
			chars[b] = b
		} else {
			chars[b] = next
			next++
		}
	}
	return chars
}()

// spelled holds the byte of each character of the alphabet, and -1 for others.
var spelled = func() (bytes [256 + 68]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, char := range alphabet {
		bytes[char] = int16(b)
	}
	return bytes
}()

// spell returns a token in the alphabet.
func spell(token []byte) string {
	chars := make([]rune, len(token))
	for i, b := range token {
		chars[i] = alphabet[b]
	}
	return string(chars)
}

// unspell is the inverse of spell. ok is false for a character outside the alphabet, and for an
// empty token.
func unspell(text string) (token []byte, ok bool) {
	token = make([]byte, 0, len(text))
	for _, char := range text {
		if int(char) >= len(spelled) || spelled[char] < 0 {
			return nil, false
		}
		token = append(token, byte(spelled[char]))
	}
	return token, len(token) > 0
}
