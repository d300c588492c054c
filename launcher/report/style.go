package report

// Style says whether text may be coloured. Its colours are those of the terminal's own palette that
// stand out on light and on dark backgrounds.
type Style bool

// Bold is for what a reader looks for first.
func (s Style) Bold(text string) string { return s.with("1", text) }

// Dim is for what is read last.
func (s Style) Dim(text string) string { return s.with("2", text) }

// Good is for progress.
func (s Style) Good(text string) string { return s.with("32", text) }

// Bad is for what somebody must look at.
func (s Style) Bad(text string) string { return s.with("1;31", text) }

func (s Style) with(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
