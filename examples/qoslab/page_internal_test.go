// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/lab"
)

// newComparison returns the page of a scenario under its policies.
func newComparison(t *testing.T, s *scenario, policyText string) string {
	t.Helper()
	script, total, err := s.expand(nil)
	require.NoError(t, err)
	var runs []*outcome
	for name := range strings.SplitSeq(policyText, ",") {
		runs = append(runs, newRun(t, script, strings.TrimSpace(name), sampleInterval(total)))
	}
	var b bytes.Buffer
	require.NoError(t, writeComparison(&b, s, runs))
	return b.String()
}

// newFrontier returns the page of a small sweep.
func newFrontier(t *testing.T) string {
	t.Helper()
	s, err := readScenario("overcommit", "")
	require.NoError(t, err)
	sw, err := parseSweep("pods=40..64")
	require.NoError(t, err)
	policies, err := parsePolicies(s.Policies)
	require.NoError(t, err)
	runs, err := runSweep(t.Context(), s, sw, policies, 4, &reporter{w: new(strings.Builder), last: time.Now()})
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, writeFrontier(&b, s, sw, policies, runs))
	return b.String()
}

// reference matches an attribute or a function with which a page loads something.
var reference = regexp.MustCompile(`(?i)<link|<img|<iframe|\bsrc\s*=|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(`)

func TestPageLoadsNothingAndEscapesItsInput(t *testing.T) {
	const attack = `</script><script>document.title = "attacked"</script><img src=x>`
	s := &scenario{Title: attack, Description: attack, script: "pod web uses cpu=0.1\nafter 10s"}
	text := newComparison(t, s, "kubelet,memory.available<1Gi")

	assert.NotContains(t, text, attack)
	assert.Contains(t, text, html.EscapeString("</script><script>"))
	assert.Empty(t, reference.FindAllString(strings.ReplaceAll(text, html.EscapeString(attack), ""), -1))
	assert.Contains(t, text, "default-src 'none'")
	assert.Contains(t, text, "Permission is hereby granted", "the page has the license of uPlot")
	_, data, found := strings.Cut(text, `<script type="application/json" id="data">`)
	require.True(t, found)
	data, _, _ = strings.Cut(data, "</script>")
	var got comparison
	require.NoError(t, json.Unmarshal([]byte(strings.ReplaceAll(data, "null", "0")), &got))
	require.Len(t, got.Policies, 2)
	assert.Equal(t, "memory.available<1Gi", got.Policies[1].Name)
	assert.InDelta(t, 1024, got.Policies[1].Threshold, 0)
	assert.Len(t, got.Policies[0].Seconds, 10)
}

// chromium is a headless browser.
type chromium struct {
	t       *testing.T
	program string
}

// findChromium returns a browser, or skips the test with the reason.
func findChromium(t *testing.T) chromium {
	t.Helper()
	for _, name := range []string{"google-chrome", "chromium", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			return chromium{t, path}
		}
	}
	if os.Getenv(lab.RequiredEnv) == "required" {
		t.Fatal("no google-chrome, chromium or chromium-browser in PATH: lab deps chromium installs one")
	}
	t.Skip("no google-chrome, chromium or chromium-browser in PATH; make test as root installs one")
	return chromium{}
}

// open opens a page, waits until its scripts have run, and returns the output. No script may write to the console.
func (c chromium) open(page, anchor string, args ...string) string {
	c.t.Helper()
	dir, err := os.MkdirTemp("", "qoslab")
	require.NoError(c.t, err)
	defer os.RemoveAll(dir) // a process of the browser may still write to it, which is no failure
	file := filepath.Join(dir, "index.html")
	require.NoError(c.t, os.WriteFile(file, []byte(page), 0o600))
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	args = append([]string{
		"--headless=new", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1400,1200", "--user-data-dir=" + filepath.Join(dir, "profile"),
	}, args...)
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // the sandbox of chromium refuses root
	}
	cmd := exec.CommandContext(ctx, c.program, append(args, "file://"+file+anchor)...)
	cmd.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(c.t, cmd.Run(), stderr.String())
	assert.NotContains(c.t, stderr.String(), "CONSOLE", "scripts write no errors and warnings")
	return stdout.String()
}

// selfCheck is the content of the element self-check.
type selfCheck struct {
	Plots, Drawn, Rows int
	Errors             []string
}

var selfCheckElement = regexp.MustCompile(`<output id="self-check" hidden="">([^<]*)</output>`)

// check returns the self-check of a page.
func (c chromium) check(page, anchor string) (got selfCheck) {
	c.t.Helper()
	found := selfCheckElement.FindStringSubmatch(c.open(page, anchor, "--dump-dom"))
	require.NotNil(c.t, found, "the page has no self-check")
	require.NoError(c.t, json.Unmarshal([]byte(html.UnescapeString(found[1])), &got), found[1])
	return got
}

func TestIntegrationPageDrawsAllPlots(t *testing.T) {
	c := findChromium(t)
	s, err := readScenario("memory-leak", "")
	require.NoError(t, err)
	page := newComparison(t, s, s.Policies)

	// Memory, CPU, memory pressure, evictions and states, for two policies; four pods under two policies.
	want := selfCheck{Plots: 10, Drawn: 10, Rows: 8, Errors: []string{}}
	assert.Equal(t, want, c.check(page, ""))
	assert.Equal(t, want, c.check(page, "#view=pods"))
}

func TestIntegrationSweepPageDrawsAllPlots(t *testing.T) {
	c := findChromium(t)
	got := c.check(newFrontier(t), "")
	assert.Equal(t, 8, got.Rows)
	assert.Empty(t, got.Errors)
	assert.GreaterOrEqual(t, got.Plots, 4)
	assert.Equal(t, got.Plots, got.Drawn)
}

func TestIntegrationPageZoomsSortsAndHides(t *testing.T) {
	c := findChromium(t)
	s, err := readScenario("memory-leak", "")
	require.NoError(t, err)
	const act = `<script>addEventListener("load", () => setTimeout(() => {
	const result = {};
	plots[0].setScale("x", {min: 100, max: 300});
	setTimeout(() => {
		result.zoomed = plots.filter(u => u.scales.x.min === 100 && u.scales.x.max === 300).length;
		document.querySelector("#bar .key").click();
		result.shown = plots[0].series.filter((s, i) => i && s.show).map(s => s.label);
		const heads = [...document.querySelectorAll("#pods th")];
		heads.find(h => h.textContent === "Memory, highest").querySelector("button").click();
		result.first = document.querySelector("#pods tbody td").textContent;
		heads[0].querySelector("button").click();
		result.sorted = document.querySelector("#pods tbody td").textContent;
		heads[0].querySelector("button").click();
		result.reversed = document.querySelector("#pods tbody td").textContent;
		document.body.dataset.result = JSON.stringify(result);
	}, 100);
}, 200))</script>`
	dom := c.open(newComparison(t, s, s.Policies)+act, "", "--dump-dom")

	_, text, found := strings.Cut(dom, `data-result="`)
	require.True(t, found)
	text, _, _ = strings.Cut(text, `"`)
	var got struct {
		Zoomed                  int
		Shown                   []string
		First, Sorted, Reversed string
	}
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(text)), &got))
	assert.Equal(t, 10, got.Zoomed, "all plots zoom together")
	assert.Equal(t, []string{"Burstable", "node"}, got.Shown, "a click hides the class Guaranteed")
	assert.Equal(t, "leak", got.First)
	assert.Equal(t, "api", got.Sorted)
	assert.Equal(t, "worker", got.Reversed, "a second click reverses the order")
}

func TestIntegrationPageIsPrinted(t *testing.T) {
	c := findChromium(t)
	s, err := readScenario("noisy-neighbour", "")
	require.NoError(t, err)
	page := newComparison(t, s, s.Policies)
	dir := t.TempDir()
	for name, args := range map[string][]string{
		"page.pdf": {"--no-pdf-header-footer", "--print-to-pdf=" + filepath.Join(dir, "page.pdf")},
		"page.png": {"--hide-scrollbars", "--screenshot=" + filepath.Join(dir, "page.png")},
	} {
		c.open(page, "", args...)
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Greater(t, len(content), 50_000, name)
		assert.Equal(t, map[string]string{"page.pdf": "%PDF", "page.png": "\x89PNG"}[name], string(content[:4]))
	}
}
