// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

// userAgent is the User-Agent header of probes, as sent by the kubelet.
const userAgent = "kube-probe/1.37"

// newRequest builds the HTTP request for config as the kubelet does. Source: pkg/probe/http/request.go.
func newRequest(config Config) (*http.Request, error) {
	target, err := newURL(config)
	if err != nil {
		return nil, err
	}
	header, err := newHeader(config.Header)
	if err != nil {
		return nil, err
	}
	// The URL was built from parts: parse it again, and check that it still has the host of c.
	req, err := http.NewRequest(http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("fields Host and Path: %w", err)
	}
	if req.URL.Hostname() != config.Host {
		return nil, fmt.Errorf("field Host: %q reads as %q in a URL", config.Host, req.URL.Hostname())
	}
	req.Header, req.Host = header, header.Get("Host")
	return req, nil
}

// newURL builds the URL of the request. The path may contain a query; its host is ignored.
func newURL(config Config) (*url.URL, error) {
	if err := probeconn.CheckAddress(config.Host, config.Port); err != nil {
		return nil, err
	}
	scheme := strings.ToLower(cmp.Or(config.Scheme, "http"))
	if scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("field Scheme: %q is neither http nor https", config.Scheme)
	}
	u, err := url.Parse(config.Path)
	if err != nil {
		u = &url.URL{Path: config.Path} // it is used literally
	}
	if u.Opaque != "" {
		return nil, fmt.Errorf("field Path: %q is a URL without a path", config.Path)
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(config.Host, strconv.Itoa(config.Port))
	return u, nil
}

// newHeader returns the configured headers and the kubelet's default headers. An empty User-Agent or Accept omits the header.
func newHeader(list []Header) (http.Header, error) {
	header := http.Header{}
	for i, h := range list {
		if h.Name == "" || strings.ContainsFunc(h.Name, isInvalidInToken) {
			return nil, fmt.Errorf("field Header[%d].Name: %q is not a header name", i, h.Name)
		}
		if strings.ContainsFunc(h.Value, isControl) {
			return nil, fmt.Errorf("field Header[%d].Value: %q of %s contains a control character", i, h.Value, h.Name)
		}
		header.Add(h.Name, h.Value)
	}
	if _, ok := header["User-Agent"]; !ok {
		header.Set("User-Agent", userAgent)
	}
	if _, ok := header["Accept"]; !ok {
		header.Set("Accept", "*/*")
	} else if header.Get("Accept") == "" {
		header.Del("Accept")
	}
	return header, nil
}

// isInvalidInToken reports whether char is forbidden in the name of a header. Source: token in RFC 9110, section 5.6.2.
func isInvalidInToken(char rune) bool {
	letter := 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z' || '0' <= char && char <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", char)
}

// isControl reports whether char is forbidden in the value of a header. Source: RFC 9110, section 5.5.
func isControl(char rune) bool { return char < ' ' && char != '\t' || char == 0x7f }
