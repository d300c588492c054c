package report

import "testing"

func TestStyle(t *testing.T) {
	for text, want := range map[string]string{"x y": "\x1b[1mx y\x1b[0m", "": ""} {
		if got := Style(true).Bold(text); got != want {
			t.Errorf("%q in bold is %q, want %q", text, got, want)
		}
		for name, style := range map[string]func(string) string{"bold": Style(false).Bold, "dim": Style(false).Good, "good": Style(false).Good, "bad": Style(false).Bad} {
			if got := style(text); got != text {
				t.Errorf("%s without colours: %q becomes %q", name, text, got)
			}
		}
	}
}
