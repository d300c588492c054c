package weights

import (
	"cmp"
	"strings"
)

// compareNames orders names of tensors with numbers in them by value, so that layer 10 follows
// layer 9.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		x, restA := part(a)
		y, restB := part(b)
		if order := compareParts(x, y); order != 0 {
			return order
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// part splits off the digits, or the other characters, at the beginning of a name.
func part(name string) (first, rest string) {
	isDigit := func(r rune) bool { return '0' <= r && r <= '9' }
	end := strings.IndexFunc(name, func(r rune) bool { return isDigit(r) != isDigit(rune(name[0])) })
	if end < 0 {
		return name, ""
	}
	return name[:end], name[end:]
}

// compareParts compares two numbers of any length by value, then by leading zeros, and anything
// else by its bytes.
func compareParts(a, b string) int {
	if a[0] < '0' || a[0] > '9' || b[0] < '0' || b[0] > '9' {
		return cmp.Compare(a, b)
	}
	x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(len(a), len(b)))
}
