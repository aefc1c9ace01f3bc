// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"
)

// For any path and headers, the server reads a single GET request, which goes to the configured host and port.
func FuzzNewRequest(f *testing.F) {
	f.Add("10.0.0.1", 80, "/healthz?a=b#c", "X", "y")
	f.Add("fd00::1", 80, "?foo", "Accept", "")
	f.Add("fe80::1%eth0", 80, "", "Host", "www.example.com")
	f.Add("h", 93, "//evil:1/x", "A", "b\r\nC: d")
	f.Add("h", 93, "%zz\r\nHost: evil", "A", "b")
	f.Add("h", 93, "http://user:secret@evil/x", "A", "b")
	f.Fuzz(func(t *testing.T, host string, port int, path, name, value string) {
		req, err := newRequest(Config{Host: host, Port: port, Path: path, Header: []Header{{name, value}}})
		if err != nil {
			return
		}
		if req.URL.Hostname() != host || req.URL.Scheme != "http" {
			t.Fatalf("%q leads to %q", path, req.URL)
		}
		var wire bytes.Buffer
		if err := req.Write(&wire); err != nil {
			return // net/http rejects invalid hosts
		}
		in := bufio.NewReader(&wire)
		got, err := http.ReadRequest(in)
		if err != nil {
			return // a server would reject the request
		}
		if got.Method != http.MethodGet || got.RequestURI != req.URL.RequestURI() || in.Buffered() != 0 {
			t.Fatalf("server reads %s %q, %d bytes follow", got.Method, got.RequestURI, in.Buffered())
		}
	})
}

func TestNewURL(t *testing.T) {
	for _, test := range []struct{ host, path, want string }{
		{"h", "?foo", "http://h:93?foo"},
		{"h", "", "http://h:93"},
		{"h", "/a?b=c#d", "http://h:93/a?b=c#d"},
		{"h", "healthz", "http://h:93/healthz"},
		{"h", "https://evil:1/x", "http://h:93/x"},
		{"h", "/%zz", "http://h:93/%25zz"},
		{"fd00::1", "/", "http://[fd00::1]:93/"},
	} {
		u, err := newURL(Config{Host: test.host, Port: 93, Path: test.path})
		if err != nil || u.String() != test.want {
			t.Errorf("%q: got %v, %v, want %s", test.path, u, err, test.want)
		}
	}
}
