// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// client sends requests to a Handler.
type client struct {
	*testing.T
	dir string
	h   *source.Handler
}

func newClient(t *testing.T, o source.HandlerOptions) *client {
	dir := filepath.Join(t.TempDir(), "manifests")
	return &client{T: t, dir: dir, h: source.NewHandler(dir, o)}
}

// do sends a request with these header names and values, and returns status, body and ETag.
func (c *client) do(method, path, body string, headers ...string) (status int, text, tag string) {
	c.Helper()
	r := httptest.NewRequest(method, "http://node/x", strings.NewReader(body))
	r.URL.Path = path
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String()), w.Header().Get("ETag")
}

// list returns a line per manifest of the response of GET /.
func (c *client) list() (lines []string) {
	c.Helper()
	status, body, _ := c.do("GET", "/", "")
	require.Equal(c, 200, status, body)
	var l source.ManifestList
	require.NoError(c, json.Unmarshal([]byte(body), &l))
	for _, m := range l.Manifests {
		line := m.Name + ":"
		for _, p := range m.Pods {
			line += fmt.Sprintf(" %s %s=%s", p.Name, p.Spec.Containers[0].Image, p.Status.Phase)
		}
		lines = append(lines, strings.Join(append([]string{line}, m.Errors...), " | "))
	}
	return append(lines, l.Errors...)
}

func (c *client) dirImages() string {
	return images(source.NewDir(c.dir, source.DirOptions{NodeName: "edge"}).Scan(time.Now().Add(time.Hour)))
}

// A manifest is created, changed and removed, and a Dir reads each state.
func TestHandlerServesAndStoresManifests(t *testing.T) {
	statuses := map[string]*corev1.PodStatus{}
	c := newClient(t, source.HandlerOptions{NodeName: "edge", Status: func(uid string) *corev1.PodStatus { return statuses[uid] }})
	assert.Empty(t, c.list(), "missing directory has no manifests")
	status, body, _ := c.do("GET", "/web.yaml", "")
	assert.Equal(t, 404, status, body)

	status, body, first := c.do("PUT", "/web.yaml", manifest("web", "1"))
	require.Equal(t, 201, status, body)
	var made source.Manifest
	require.NoError(t, json.Unmarshal([]byte(body), &made))
	uid := string(made.Pods[0].UID)
	u := source.NewDir(c.dir, source.DirOptions{NodeName: "edge"}).Scan(time.Now().Add(time.Hour))
	require.Len(t, u.Pods, 1)
	assert.Equal(t, uid, string(u.Pods[0].UID), "the response has the UID of the pod that runs")
	info, err := os.Stat(filepath.Join(c.dir, "web.yaml"))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode())

	statuses[uid] = &corev1.PodStatus{Phase: corev1.PodRunning}
	assert.Equal(t, []string{"web.yaml: web-edge 1=Running"}, c.list())
	status, body, tag := c.do("GET", "/web.yaml", "")
	assert.Equal(t, 200, status)
	assert.Equal(t, strings.TrimSpace(manifest("web", "1")), body)
	assert.Equal(t, first, tag)

	status, _, second := c.do("PUT", "/web.yaml", manifest("web", "2"))
	assert.Equal(t, 200, status)
	assert.NotEqual(t, first, second)
	status, body, _ = c.do("PUT", "/db.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"db"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	require.Equal(t, 201, status, body)
	assert.Equal(t, []string{"db.json: db-edge i=Pending", "web.yaml: web-edge 2=Pending"}, c.list(), "changed content is a new pod without a status")
	assert.Equal(t, "db-edge=i web-edge=2", c.dirImages())

	// A manifest written by hand is listed with its errors.
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "hand.yaml"), []byte(manifest("web", "3")), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(c.dir, "bad.yaml"), []byte("kind: {"), 0o600))
	assert.Equal(t, []string{
		"bad.yaml: | bad.yaml:1: parse YAML: did not find expected node content", "db.json: db-edge i=Pending",
		"hand.yaml: | hand.yaml:4: metadata.name: duplicate: pod default/web-edge is in web.yaml", "web.yaml: web-edge 2=Pending",
	}, strings.Split(strings.ReplaceAll(strings.Join(c.list(), "\n"), c.dir+"/", ""), "\n"))

	for _, name := range []string{"/hand.yaml", "/bad.yaml", "/db.json"} {
		status, body, _ = c.do("DELETE", name, "")
		assert.Equal(t, 204, status, body)
	}
	status, _, _ = c.do("DELETE", "/db.json", "")
	assert.Equal(t, 404, status)
	assert.Equal(t, "web-edge=2", c.dirImages())

	// A manifest without pods is valid.
	status, body, _ = c.do("PUT", "/web.yaml", `{"apiVersion":"v1","kind":"PodList","items":[]}`)
	assert.Equal(t, 200, status, body)
	assert.Empty(t, c.dirImages())
}

// A rejected request changes nothing and returns the reason.
func TestHandlerRejectsInvalidRequests(t *testing.T) {
	c := newClient(t, source.HandlerOptions{NodeName: "edge"})
	status, _, tag := c.do("PUT", "/web.yaml", manifest("web", "1"))
	require.Equal(t, 201, status)
	outside := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(outside, []byte(manifest("secret", "1")), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(c.dir, "link.yaml")))
	require.NoError(t, os.Symlink("none", filepath.Join(c.dir, "dangling.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(c.dir, "dir.yaml"), 0o700))
	web := manifest("web", "9")
	for _, x := range []struct {
		method, path, body string
		status             int
		text               string
		headers            []string
	}{
		{"PUT", "/web.yaml", strings.Replace(web, "image:", "imagee:", 1), 422, "web.yaml:8: spec.containers[0].imagee: unknown field", nil},
		{"PUT", "/web.yaml", "", 422, "web.yaml:1: no object, only blanks and comments", nil},
		{"PUT", "/web.yaml", strings.Replace(web, "name: web", "name: Web!", 1), 422, `"Web!-edge"`, nil},
		{"PUT", "/web.yaml", web + "---\n" + web, 409, "web.yaml:13: metadata.name: duplicate: pod default/web-edge is in web.yaml", nil},
		{"PUT", "/other.yaml", web, 409, "other.yaml:4: metadata.name: duplicate: pod default/web-edge is in web.yaml", nil},
		{"PUT", "/web.yaml", strings.Repeat("#", 10<<20+1), 413, "manifest web.yaml: more than 10485760 bytes", nil},
		{"PUT", "/web.yaml", web, 412, "manifest web.yaml: If-Match: the version differs", []string{"If-Match", `"x", "y"`}},
		{"PUT", "/new.yaml", web, 412, "manifest new.yaml: If-Match: the version differs", []string{"If-Match", "*"}},
		{"PUT", "/web.yaml", web, 412, "manifest web.yaml: If-None-Match: the manifest exists", []string{"If-None-Match", "*"}},
		{"DELETE", "/web.yaml", "", 412, "If-Match", []string{"If-Match", `"x"`}},
		{"GET", "/link.yaml", "", 409, "manifest link.yaml: not a regular file: L", nil},
		{"PUT", "/link.yaml", manifest("x", "1"), 409, "not a regular file", nil},
		{"DELETE", "/link.yaml", "", 409, "not a regular file", nil},
		{"PUT", "/dangling.yaml", manifest("x", "1"), 409, "not a regular file", nil},
		{"PUT", "/dir.yaml", manifest("x", "1"), 409, "not a regular file", nil},
		{"DELETE", "/dir.yaml", "", 409, "not a regular file", nil},
		{"PUT", "/.hidden", manifest("x", "1"), 400, `manifest ".hidden": want a name`, nil},
		{"GET", "/../secret", "", 400, "want a name", nil},
		{"PUT", "/a/b", "", 400, "want a name", nil},
		{"PUT", "/a\x00", "", 400, "want a name", nil},
		{"PUT", "/" + strings.Repeat("a", 201), "", 400, "want a name", nil},
		{"PUT", "/", "", 405, "want GET, HEAD", nil},
		{"POST", "/web.yaml", "", 405, "want GET, HEAD, PUT, DELETE", nil},
	} {
		status, text, _ := c.do(x.method, x.path, x.body, x.headers...)
		assert.Equal(t, x.status, status, "%s %.100q: %.300s", x.method, x.path, text)
		assert.Contains(t, text, x.text)
		assert.LessOrEqual(t, len(text), 5_000)
	}
	_, _, now := c.do("GET", "/web.yaml", "")
	assert.Equal(t, tag, now)
	data, err := os.ReadFile(outside)
	require.NoError(t, err)
	assert.Equal(t, manifest("secret", "1"), string(data))
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	assert.Len(t, left, 4)

	status, _, _ = c.do("PUT", "/web.yaml", web, "If-Match", `"x"`, "If-Match", tag)
	assert.Equal(t, 200, status)
	status, _, _ = c.do("PUT", "/new.yaml", manifest("new", "1"), "If-None-Match", "*")
	assert.Equal(t, 201, status)
}

// A slow client is cut off at its deadline, and does not delay other clients.
func TestHandlerLimitsSlowUploads(t *testing.T) {
	h := source.NewHandler(t.TempDir(), source.HandlerOptions{BodyTimeout: 300 * time.Millisecond})
	server := httptest.NewServer(h)
	defer server.Close()
	put := func(name string, body io.Reader) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/"+name, body)
		assert.NoError(t, err)
		resp, err := http.DefaultClient.Do(r)
		if !assert.NoError(t, err) {
			return 0, ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}

	var slow sync.WaitGroup
	var busy atomic.Bool // a request was rejected because of the slow clients
	for i := range 5 {
		slow.Go(func() {
			for !busy.Load() {
				in, out := io.Pipe()
				slow.Go(func() { _, _ = io.WriteString(out, "apiVersion: v1\n") })
				status, text := put(fmt.Sprintf("slow%d", i), in)
				out.Close()
				in.Close()
				if status == 503 {
					busy.Store(true)
					continue
				}
				assert.Equal(t, 400, status)
				assert.Contains(t, text, "read body: ")
			}
		})
	}

	require.Eventually(t, busy.Load, time.Minute, time.Millisecond)
	resp, err := http.Get(server.URL + "/")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, 200, resp.StatusCode, "slow uploads do not block reads")
	slow.Wait()
	status, text := put("web", strings.NewReader(manifest("web", "1")))
	assert.Equal(t, 201, status, text)
}

// Clients and a user change one directory. The source never reports an error caused by a client, and finally has the last upload.
func TestHandlerAndDirReadOneDirectory(t *testing.T) {
	c := newClient(t, source.HandlerOptions{NodeName: "edge"})
	require.NoError(t, os.MkdirAll(c.dir, 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	last := ""
	var run sync.WaitGroup
	run.Go(func() {
		_ = source.NewDir(c.dir, source.DirOptions{NodeName: "edge", StableFor: time.Millisecond, Period: 10 * time.Millisecond}).Run(ctx, func(u source.Update) {
			assert.Empty(t, u.Errs)
			mu.Lock()
			defer mu.Unlock()
			last = images(u)
		})
	})

	var clients sync.WaitGroup
	for n := range 4 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for i := range 50 {
				name := fmt.Sprintf("/f%d", random.IntN(6))
				switch random.IntN(4) {
				case 0:
					status, text, _ := c.do("DELETE", name, "")
					assert.Contains(t, []int{204, 404}, status, text)
				case 1:
					_ = c.list()
				default:
					// Two manifests may define one pod: the second is rejected.
					status, text, _ := c.do("PUT", name, manifest(fmt.Sprintf("p%d", random.IntN(6)), fmt.Sprint(i)))
					assert.Contains(t, []int{200, 201, 409}, status, text)
				}
			}
		})
	}

	clients.Wait()
	want := c.dirImages()
	assert.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return last == want
	}, time.Minute, 10*time.Millisecond, want)
	cancel()
	run.Wait()
}

// FuzzHandler checks that no request creates a file outside of the directory, or a file that Dir cannot read.
func FuzzHandler(f *testing.F) {
	f.Add("PUT", "/web.yaml", manifest("web", "1"))
	f.Add("PUT", "/../x", manifest("web", "1"))
	f.Add("DELETE", "//web.yaml", "")
	f.Add("GET", "/%2e%2e/x", "{")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		root := t.TempDir()
		dir := filepath.Join(root, "m")
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL.Path = method, path
		w := httptest.NewRecorder()
		source.NewHandler(dir, source.HandlerOptions{}).ServeHTTP(w, r)
		found, err := os.ReadDir(root)
		require.NoError(t, err)
		if len(found) == 0 {
			return
		}
		require.Len(t, found, 1)
		require.Equal(t, 201, w.Code)
		u := source.NewDir(dir, source.DirOptions{}).Scan(time.Now().Add(time.Hour))
		require.Empty(t, u.Errs)
		require.False(t, u.Incomplete)
	})
}
