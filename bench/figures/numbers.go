package main

// Figures in text: what counts as one, and when a rounded figure equals a measured one.

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// figure is a number as it stands in a text.
type figure struct {
	text  string
	value float64
	half  float64 // half a unit of its last digit
}

var (
	day    = regexp.MustCompile(`\d{4}-\d{2}-\d{2}`)
	number = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d{1,2}\b)?`)
	// names hold digits, but no figures: code, targets of links, dates, versions, shapes, powers
	// and words such as BF16, top-8 and 16B.
	names = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)|https?://\\S+|<!--.*?-->" +
		`|\d{4}-\d{2}(?:-\d{2})?|\b202\d\b|\d+(?:\.\d+){2,}|arXiv \S+|\bZen \d|\d+(?:[x/]\d+)*x\d+(?:/\d+)?|\d+[³²⁻]` +
		`|\b\d+[BMTD]\b|\b[\pL_]+(?:-?\d+(?:\.\d+)?[\pL_]*)+|\b\d+-(?:bit|point)\b`)
	// measured is a number with a unit or a comparison that only a measurement has.
	measured = regexp.MustCompile(`\d[\d,.]*(?: \w+)? ?(?:tokens/s|[GT]FLOP/s|[GM]i?B/s|times as (?:fast|long)|% of the (?:\w+ )?peak)`)
)

// prose returns the figures of a Markdown text.
func prose(text string) []figure {
	return numbers(names.ReplaceAllString(text, " "))
}

// results returns the numbers of a result file, except its commits and dates.
func results(text string) []figure {
	text = day.ReplaceAllString(text, " ")
	return numbers(hash.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "abcdef") {
			return " "
		}
		return word
	}))
}

// numbers returns all numbers of a text.
func numbers(text string) (all []figure) {
	for _, match := range number.FindAllString(text, -1) {
		all = append(all, parse(match))
	}
	return all
}

func parse(text string) figure {
	plain := strings.ReplaceAll(text, ",", "")
	value, err := strconv.ParseFloat(plain, 64)
	if err != nil {
		panic("figures: " + err.Error()) // the expression of a number admits only numbers
	}
	mantissa, exponent, _ := strings.Cut(strings.ToLower(plain), "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	power, _ := strconv.Atoi(exponent) // 0 if there is none
	return figure{text: text, value: value, half: math.Pow10(power-len(fraction)) / 2}
}

// rounds reports whether f is measured, rounded to the digits of f.
func (f figure) rounds(measured figure) bool {
	return math.Abs(f.value-measured.value) <= f.half*(1+1e-9)
}

// among reports whether f is one of the measured figures, rounded or not.
func (f figure) among(all []figure) bool {
	for _, m := range all {
		if m.half <= f.half*(1+1e-9) && f.rounds(m) {
			return true
		}
	}
	return false
}
