package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// browsers are programs that can be the browser. The first one is smaller, and its windows may be
// as narrow as a phone.
var browsers = []string{"chromium-headless-shell", "chromium"}

// forbids matches the element that forbids the script of a test.
var forbids = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`)

// load loads a page in Chromium, in a window of some width, runs a script in it, and decodes the
// value that the script returns. It skips the test if there is no browser, unless
// SPMOE_NEED_BROWSER is set.
func load(t testing.TB, page []byte, width int, script string, value any) {
	t.Helper()
	program := ""
	for _, name := range browsers {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	if program == "" {
		if os.Getenv("SPMOE_NEED_BROWSER") != "" {
			t.Fatalf("none of %q is installed", browsers)
		}
		t.Skipf("none of %q is installed", browsers)
	}
	// An error in the page's own script leaves it without what the test's script looks at.
	test := fmt.Sprintf(`<script>addEventListener("load", () => {
	const out = document.createElement("pre");
	out.id = "result";
	try { out.textContent = JSON.stringify((() => { %s })()); } catch (e) { out.textContent = "!" + e.stack; }
	document.body.append(out);
})</script></body>`, script)
	text := strings.Replace(forbids.ReplaceAllLiteralString(string(page), ""), "</body>", test, 1)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	size := fmt.Sprintf("--window-size=%d,1000", width)
	command := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom", size,
		"--user-data-dir="+t.TempDir(), "file://"+file)
	var problems bytes.Buffer
	command.Stderr = &problems
	dom, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, problems.Bytes())
	}
	_, result, found := strings.Cut(string(dom), `<pre id="result">`)
	result, _, _ = strings.Cut(result, "</pre>")
	result = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&", "&nbsp;", "\u00a0").Replace(result)
	if !found || strings.HasPrefix(result, "!") {
		t.Fatalf("the page has no result: %s", result)
	}
	if err := json.Unmarshal([]byte(result), value); err != nil {
		t.Fatalf("%v: %.1000s", err, result)
	}
}

// look loads a report page in a window of some width. It reports charts that draw nothing and
// texts that are cut off or small, and returns the names of the charts.
func look(t testing.TB, page []byte, width int) (charts []string) {
	t.Helper()
	var found struct{ Problems, Charts []string }
	load(t, page, width, `
	const problems = [], all = (q, of = document) => Array.from(of.querySelectorAll(q));
	if (document.documentElement.scrollWidth > innerWidth) problems.push("the page is wider than its window");
	for (const f of all("figure")) {
		const svg = f.querySelector("svg"), width = svg.getBoundingClientRect().width;
		if (!all("path[d^=M], circle, rect.stack, canvas", f).length) problems.push(f.id + " draws nothing");
		if (all("[d*=NaN], [x*=NaN], [cx*=NaN], [x1*=NaN], [height*='-']", f).length) problems.push(f.id + " has a NaN");
		for (const t of all("text", f)) {
			const b = t.getBBox();
			if (b.x < -1 || b.x + b.width > width + 1) problems.push(f.id + " cuts off " + t.textContent);
			if (parseFloat(getComputedStyle(t).fontSize) < 12) problems.push(t.textContent + " is small");
		}
	}
	return {problems, charts: all("figure").map(f => f.id)};`, &found)
	for _, problem := range found.Problems {
		t.Errorf("%d pixels: %s", width, problem)
	}
	return found.Charts
}
