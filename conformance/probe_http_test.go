// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/conformance"
)

// site is a web server whose paths select the kind of response, and which returns the request in the body.
func site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", echo)
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "a body")
	})
	mux.HandleFunc("/to/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.Header().Set("Location", r.URL.Query().Get("at"))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "look elsewhere")
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/body/{size}", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.PathValue("size"))
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}
	})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/stall/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "some of it")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "less")
	})
	return mux
}

// echo responds with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s %s\nHost: %s\n", r.Method, r.RequestURI, r.Proto, strings.Replace(r.Host, loopback, "HOST", 1))
	r.Header.Del("Connection") // present only if the connection is not reused
	_ = r.Header.Write(w)
}

func get(port int, path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt(port), Path: path}}
}

// serveSite runs the server and returns its port.
func serveSite(t *testing.T, start func(*httptest.Server)) int {
	t.Helper()
	server := httptest.NewUnstartedServer(site())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(server)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func TestProbeHTTP(t *testing.T) {
	port := serveSite(t, (*httptest.Server).Start)
	other := serveSite(t, (*httptest.Server).Start)
	var dialogues []probeCase
	add := func(name, path string) {
		dialogues = append(dialogues, probeCase{name: name, handler: get(port, path)})
	}
	for code := 200; code < 600; code += 7 {
		add("status", fmt.Sprint("/status/", code))
	}
	for _, code := range []int{204, 299, 300, 301, 304, 308, 399, 400, 404, 500, 503, 599} {
		add("status", fmt.Sprint("/status/", code))
	}
	for _, code := range []int{300, 301, 302, 303, 304, 307, 308, 399} {
		add("redirect to a path", fmt.Sprintf("/to/%d?at=/status/200", code))
		add("redirect to a missing path", fmt.Sprintf("/to/%d?at=/status/404", code))
		add("redirect to another port", fmt.Sprintf("/to/%d?at=http://127.0.0.1:%d/status/200", code, other))
		add("redirect to a host name", fmt.Sprintf("/to/%d?at=http://localhost:%d/status/500", code, port))
		add("redirect without a Location", fmt.Sprintf("/to/%d", code))
		add("redirect to an invalid URL", fmt.Sprintf("/to/%d?at=http://[::1:80/%%zz", code))
		add("redirect to another scheme", fmt.Sprintf("/to/%d?at=ftp://127.0.0.1/", code))
	}
	add("loop", "/loop")
	for _, size := range []int{0, 1, 10239, 10240, 10241, 1 << 20} {
		add("body", fmt.Sprint("/body/", size))
	}
	add("endless body", "/endless")
	runProbeCases(t, append(dialogues,
		probeCase{name: "refused", handler: get(closedPort(t), "/")},
		probeCase{name: "silent", handler: get(port, "/silent"), timeout: 300 * time.Millisecond},
		probeCase{name: "nothing accepted", handler: get(fullBacklog(t), "/"), timeout: 300 * time.Millisecond},
		probeCase{name: "closes", handler: get(listenRaw(t, readAnd("")), "/")},
		probeCase{name: "no HTTP", handler: get(listenRaw(t, readAnd("SSH-2.0-OpenSSH_9.2\r\n")), "/")},
		probeCase{name: "incomplete header", handler: get(listenRaw(t, readAnd("HTTP/1.1 200 OK\r\nA: b\r\n")), "/")},
		probeCase{name: "HTTP/1.0", handler: get(listenRaw(t, readAnd("HTTP/1.0 200 OK\r\n\r\nold")), "/")},
		probeCase{name: "status without a text", handler: get(listenRaw(t, readAnd("HTTP/1.1 200\r\n\r\nfine")), "/")},
		probeCase{name: "continue first", handler: get(listenRaw(t, readAnd("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nfine")), "/")},
		probeCase{name: "switching protocols", handler: get(listenRaw(t, readAnd("HTTP/1.1 101 Switching Protocols\r\n\r\n")), "/")},
	))
}

// readAnd returns a connection handler that reads the request, writes text, and closes the connection.
func readAnd(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, text)
	}
}

// An incomplete body is a failure. The kubelet discards such a probe.
func TestProbeHTTPBrokenBody(t *testing.T) {
	port := serveSite(t, (*httptest.Server).Start)
	const meant = "a body that stalls or is incomplete is a failure; the kubelet discards the probe"
	stall := func(code int, output string) probeCase {
		return probeCase{
			name: fmt.Sprint("stalls after ", code), handler: get(port, fmt.Sprint("/stall/", code)),
			timeout: 300 * time.Millisecond, meant: meant, want: probeOutcome{Outcome: "failure", Output: output},
		}
	}
	runProbeCases(t, []probeCase{
		stall(200, "HTTP probe got statuscode 200 and no whole body: context deadline exceeded"),
		stall(302, "HTTP probe got statuscode 302 and no whole body: context deadline exceeded"),
		stall(500, "HTTP probe failed with statuscode: 500"),
		{
			name: "short", handler: get(port, "/short"), meant: meant,
			want: probeOutcome{Outcome: "failure", Output: "HTTP probe got statuscode 200 and no whole body: unexpected EOF"},
		},
	})
}

func TestProbeHTTPS(t *testing.T) {
	one := serveSite(t, (*httptest.Server).StartTLS)
	two := serveSite(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
	plain := serveSite(t, (*httptest.Server).Start)
	https := func(port int, path string) corev1.ProbeHandler {
		h := get(port, path)
		h.HTTPGet.Scheme = corev1.URISchemeHTTPS
		return h
	}
	runProbeCases(t, []probeCase{
		{name: "HTTP/1.1", handler: https(one, "/")},
		{name: "HTTP/2", handler: https(two, "/")},
		{name: "HTTP/2 status", handler: https(two, "/status/503")},
		{name: "to HTTP", handler: https(one, fmt.Sprintf("/to/302?at=http://127.0.0.1:%d/", plain))},
		{name: "from HTTP", handler: get(plain, fmt.Sprintf("/to/302?at=https://127.0.0.1:%d/", two))},
		{name: "TLS to HTTP", handler: https(plain, "/")},
		{name: "HTTP to TLS", handler: get(one, "/")},
		{name: "handshake silent", handler: https(fullBacklog(t), "/"), timeout: 300 * time.Millisecond},
		{name: "HTTP/2 silent", handler: https(two, "/silent"), timeout: 300 * time.Millisecond},
	})
}

// The server receives the same requests from both sides, for random paths and headers.
func TestProbeHTTPRequest(t *testing.T) {
	port := serveSite(t, (*httptest.Server).Start)
	conformance.Comparison[corev1.ProbeHandler, probeOutcome]{
		Make: func(c *conformance.Choices) corev1.ProbeHandler { return anyGet(c, port) },
		Kubelet: func(h corev1.ProbeHandler) probeOutcome {
			return normalizeProbe(probeCase{handler: h, timeout: time.Minute}.kubelet(&corev1.Container{
				ReadinessProbe: &corev1.Probe{ProbeHandler: h, PeriodSeconds: 10},
			}))
		},
		Ours: func(h corev1.ProbeHandler) probeOutcome {
			first, again := probeCase{handler: h, timeout: time.Minute}.ours(t, &corev1.Container{
				Name: "c", ReadinessProbe: &corev1.Probe{ProbeHandler: h, PeriodSeconds: 10},
			}, true)
			if normalizeProbe(first) != normalizeProbe(again) {
				t.Errorf("nodeagent returned %+v, and then %+v", first, again)
			}
			return normalizeProbe(again)
		},
		// An invalid field is a failure with our own message. The kubelet then never has a success.
		Same: func(kubelet, ours probeOutcome) bool {
			if strings.HasPrefix(ours.Output, "httpGet: field ") {
				return kubelet.Outcome == "failure" || kubelet.Discarded
			}
			return kubelet == ours
		},
		Exceptions: []conformance.Exception[corev1.ProbeHandler, probeOutcome]{{
			Name:   "header that is not sent",
			Reason: "a header value with a line break or a control character is invalid, even if net/http ignores the header",
			When:   func(h corev1.ProbeHandler) bool { return hidden(h.HTTPGet.HTTPHeaders) },
		}},
	}.Run(t, flags.AtMost(20_000)) // each input causes three requests
}

// anyGet returns a probe with a random path and random headers, valid or not.
func anyGet(c *conformance.Choices, port int) corev1.ProbeHandler {
	path := conformance.Pick(c, "/", "", "ready", "?a=b", "//x", "/a b", "/%41", "/%zz", "/ä", "/a#b", "http://x.example/p", "/a\x00", "..", "/./a/../b", ":", "a:b", "*")
	for range c.Int(3) {
		path += conformance.Pick(c, "/x", "?q=1", "&r=%20", "#f", "%2f", " ", "+", "\t", ";", "é", "[", "\\")
	}
	h := get(port, path)
	h.HTTPGet.Scheme = conformance.Pick[corev1.URIScheme](c, "", "HTTP", "http")
	for range c.Int(5) {
		h.HTTPGet.HTTPHeaders = append(h.HTTPGet.HTTPHeaders, corev1.HTTPHeader{
			Name: conformance.Pick(c, "X-A", "x-a", "Accept", "accept", "User-Agent", "Host", "Accept-Encoding", "Cookie",
				"Authorization", "Referer", "Range", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "bad name", "Bad:", "ä", ""),
			Value: conformance.Pick(c, "1", "", " x ", "a.example", "*/*", "gzip", "close", "a\r\nB: c", "a\nb", "é", "\x00", "bytes=0-1"),
		})
	}
	return h
}

// hidden reports whether a header has an invalid value and a name that net/http handles itself.
func hidden(headers []corev1.HTTPHeader) bool {
	for _, h := range headers {
		switch http.CanonicalHeaderKey(h.Name) {
		case "Accept", "Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer":
			if strings.ContainsAny(h.Value, "\r\n\x00") {
				return true
			}
		}
	}
	return false
}
