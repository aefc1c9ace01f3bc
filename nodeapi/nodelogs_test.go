// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeapi_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodeapi"
)

const secret = "root:x:0:0"

// newLogDir creates a log directory with files and links of all kinds, and a secret outside of it.
func newLogDir(t testing.TB) (dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "log")
	write := func(name, content string) {
		path := filepath.Join(top, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	write("etc/passwd", secret)
	write("log/syslog", "a line\n")
	write("log/kubelet.log", "from a file\n")
	write("log/proxy/proxy.log", "from a directory\n")
	write("log/pods/ns_p_uid/c/0.log", "from a pod\n")
	link := func(name, target string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(target, path))
	}
	link("absolute", filepath.Join(top, "etc/passwd"))
	link("relative", "../etc/passwd")
	link("dir", filepath.Join(top, "etc"))
	link("updir", "..")
	link("containers/p_ns_c.log", filepath.Join(dir, "pods/ns_p_uid/c/0.log"))
	link("pods/back", "../containers")
	link("chain", "relative")
	link("loop", "loop")
	link("prefix", dir+"-other/x")
	write("log-other/x", secret)
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	return dir
}

func sendRequest(t *testing.T, h http.Handler, path string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body := w.Result().Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		gz, err := gzip.NewReader(body)
		require.NoError(t, err)
		body = gz
	}
	data, err := io.ReadAll(body)
	require.NoError(t, err)
	return w.Code, string(data)
}

func TestNodeLogsServesFilesAndDirectories(t *testing.T) {
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: newLogDir(t)})
	require.NoError(t, err)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/logs/syslog":                        {200, "a line\n"},
		"/logs/containers/p_ns_c.log":         {200, "from a pod\n"},
		"/logs/pods/back/p_ns_c.log":          {200, "from a pod\n"},
		"/logs/pods/../syslog":                {200, "a line\n"},
		"/logs/missing":                       {404, "404 page not found\n"},
		"/logs/syslog/x":                      {404, "404 page not found\n"},
		"/logs/absolute":                      {403, "403 Forbidden\n"},
		"/logs/relative":                      {403, "403 Forbidden\n"},
		"/logs/chain":                         {403, "403 Forbidden\n"},
		"/logs/prefix":                        {403, "403 Forbidden\n"},
		"/logs/dir/passwd":                    {403, "403 Forbidden\n"},
		"/logs/updir/etc/passwd":              {403, "403 Forbidden\n"},
		"/logs/pipe":                          {403, "403 Forbidden\n"},
		"/logs/loop":                          {500, "500 Internal Server Error\n"},
		"/logs/%2e%2e/etc/passwd":             {404, "404 page not found\n"},
		"/logs/..%2fetc%2fpasswd":             {404, "404 page not found\n"},
		"/logs/x%2f..%2f..%2f..%2fetc/passwd": {404, "404 page not found\n"},
		"/logs/syslog%00":                     {500, "500 Internal Server Error\n"},
		"/logs/syslog?query=kubelet":          {200, "a line\n"}, // queries are disabled
	} {
		code, body := sendRequest(t, h, path)
		assert.Equal(t, want.code, code, path)
		assert.Equal(t, want.body, body, path)
	}
	_, list := sendRequest(t, h, "/logs/")
	assert.Contains(t, list, `<a href="syslog">syslog</a>`)
}

func TestFollowLinksServesLinksOutOfDirectory(t *testing.T) {
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: newLogDir(t), FollowLinks: true, AllowQueries: true})
	require.NoError(t, err)
	_, body := sendRequest(t, h, "/logs/absolute")
	assert.Equal(t, secret, body, "FollowLinks serves links, as the kubelet does")
	code, body := sendRequest(t, h, "/logs/?query=dir/passwd")
	assert.Equal(t, http.StatusNotAcceptable, code, "queries follow no links, as in the kubelet")
	assert.NotContains(t, body, secret)
}

func TestNodeLogsWithoutDirectoryResponds404(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: dir})
	require.NoError(t, err)
	code, _ := sendRequest(t, h, "/logs/")
	assert.Equal(t, http.StatusNotFound, code)
	require.NoError(t, os.Mkdir(dir, 0o755))
	code, _ = sendRequest(t, h, "/logs/")
	assert.Equal(t, http.StatusOK, code, "a directory that is created later is served")
}

// writeJournalctl writes a program that stands for journalctl, and returns its path.
func writeJournalctl(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	return path
}

const units = `[ "$1" = --field ] && { echo containerd.service; exit; }` + "\n"

func TestNodeLogsQueries(t *testing.T) {
	h, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{
		Dir: newLogDir(t), AllowQueries: true, Journal: writeJournalctl(t, units+`for a; do echo "<$a>"; done; echo trouble >&2; exit 3`),
	})
	require.NoError(t, err)
	for query, want := range map[string]struct {
		code int
		body string
	}{
		"query=containerd": {200, "<--utc>\n<--no-pager>\n<--output=short-precise>\n<--unit=containerd>\ntrouble\n"},
		"query=containerd&tailLines=5&pattern=a+b&boot=-1&sinceTime=2026-01-02T03:04:05%2B01:00": {
			200,
			"<--utc>\n<--no-pager>\n<--output=short-precise>\n<--since=2026-1-2 02:4:5 UTC>\n<--pager-end>\n<--lines=5>\n" +
				"<--unit=containerd>\n<--grep=a b>\n<--boot>\n<-1>\ntrouble\n",
		},
		"query=kubelet":             {200, "from a file\n"},
		"query=proxy":               {200, "from a directory\n"},
		"query=nobody":              {200, "\nlog not found for nobody\n"},
		"query=pipe":                {200, "\nerror getting log for pipe: open pipe: it is neither a regular file nor a directory: permission denied\n"},
		"query=kubelet&tailLines=5": {200, "\noptions present and query resolved to log files for [kubelet]\ntry without specifying options\n"},
		"query=/syslog":             {200, "a line\n"},
		"query=./syslog":            {200, "a line\n"},
		"query=%20":                 {400, `query: Invalid value: [" "]: may not be empty` + "\n"},
		"query=x&boot=one":          {400, `boot: Invalid value: "one": strconv.Atoi: parsing "one": invalid syntax` + "\n"},
		"query=x&sinceTime=now":     {400, `sinceTime: Invalid value: "now": invalid time format` + "\n"},
		"tailLines=5":               {406, "query: Required value: cannot be empty with options\n"},
		"query=/a&query=/b":         {406, `query: Invalid value: ["/a","/b"]: cannot specify more than one file` + "\n"},
		"query=/a&query=b":          {406, `query: Invalid value: "[/a], [b]": cannot specify a file and service` + "\n"},
		"query=/syslog&boot=0":      {406, `query: Invalid value: ["/syslog"]: cannot specify file with options` + "\n"},
		"query=x&boot=1":            {406, "boot: Invalid value: 1: must be less than 1\n"},
		"query=x&tailLines=100001":  {406, "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive\n"},
		"query=a$b":                 {406, `query: Invalid value: "a$b": input contains unsupported characters` + "\n"},
		"query=a&query=b&query=c&query=d&query=e": {406, "query: Too many: 5: must have at most 4 items\n"},
		"query=x&pattern=(":                       {406, "pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`\n"},
	} {
		code, body := sendRequest(t, h, "/logs/?"+query)
		assert.Equal(t, want.code, code, query)
		assert.Equal(t, want.body, body, query)
	}
	code, body := sendRequest(t, h, "/logs/syslog?query=kubelet")
	assert.Equal(t, http.StatusNotAcceptable, code)
	assert.Equal(t, "path not allowed in query mode\n", body)
	_, body = sendRequest(t, h, "/logs/?query=kubelet", "Accept-Encoding", "gzip")
	assert.Equal(t, "from a file\n", body)
}

func TestJournalQueryIsLimitedInTimeAndOutput(t *testing.T) {
	endless, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: newLogDir(t), AllowQueries: true, MaxOutput: 1000, Journal: writeJournalctl(t, units+"exec yes")})
	require.NoError(t, err)
	_, body := sendRequest(t, endless, "/logs/?query=containerd")
	assert.Equal(t, strings.Repeat("y\n", 500)+"\nerror: the answer is too large\n", body)

	start := time.Now()
	silent, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{
		Dir: newLogDir(t), AllowQueries: true, Timeout: 200 * time.Millisecond, MaxQueries: 1, Journal: writeJournalctl(t, units+"exec sleep 100"),
	})
	require.NoError(t, err)
	sendRequest(t, silent, "/logs/?query=containerd")
	assert.Less(t, time.Since(start), 20*time.Second, "journalctl is killed at the timeout of its query")

	absent, err := nodeapi.NewNodeLogs(nodeapi.NodeLogsOptions{Dir: newLogDir(t), AllowQueries: true, Journal: "/nonexistent"})
	require.NoError(t, err)
	_, body = sendRequest(t, absent, "/logs/?query=kubelet")
	assert.Equal(t, "from a file\n", body, "without journalctl, queries read files")
}
