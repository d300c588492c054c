package report

// Style says whether text may be colored. Its colors come from the terminal's own palette and are
// readable on light and dark backgrounds.
type Style bool

// Bold emphasizes the most important text.
func (s Style) Bold(text string) string { return s.with("1", text) }

// Good marks progress.
func (s Style) Good(text string) string { return s.with("32", text) }

// Bad marks problems.
func (s Style) Bad(text string) string { return s.with("1;31", text) }

func (s Style) with(code, text string) string {
	if !s || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
