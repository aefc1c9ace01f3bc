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

// userAgent is what probes call themselves: the name of the kubelet that they behave like.
const userAgent = "kube-probe/1.37"

// newRequest builds the request of a probe, as pkg/probe/http/request.go of the kubelet does.
func newRequest(c Config) (*http.Request, error) {
	target, err := newURL(c)
	if err != nil {
		return nil, err
	}
	header, err := newHeader(c.Header)
	if err != nil {
		return nil, err
	}
	// The URL was put together from parts: only reading it back shows what a server would be asked.
	req, err := http.NewRequest(http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("fields Host and Path: %w", err)
	}
	if req.URL.Hostname() != c.Host {
		return nil, fmt.Errorf("field Host: %q reads as %q in a URL", c.Host, req.URL.Hostname())
	}
	req.Header, req.Host = header, header.Get("Host")
	return req, nil
}

// newURL reads the path as a reference, so that it may have a query, and puts the address in place of any that it
// brings along. What is no reference is a path letter by letter.
func newURL(c Config) (*url.URL, error) {
	if err := probeconn.CheckAddress(c.Host, c.Port); err != nil {
		return nil, err
	}
	scheme := strings.ToLower(cmp.Or(c.Scheme, "http"))
	if scheme != "http" && scheme != "https" {
		return nil, fmt.Errorf("field Scheme: %q is neither http nor https", c.Scheme)
	}
	u, err := url.Parse(c.Path)
	if err != nil {
		u = &url.URL{Path: c.Path}
	}
	if u.Opaque != "" {
		return nil, fmt.Errorf("field Path: %q is a URL without a path", c.Path)
	}
	u.Scheme, u.Host = scheme, net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	return u, nil
}

// newHeader adds what the kubelet sends where the list does not say otherwise. An empty User-Agent stays, and makes
// net/http send none; of an empty Accept nothing may stay.
func newHeader(list []Header) (http.Header, error) {
	header := http.Header{}
	for i, h := range list {
		if h.Name == "" || strings.ContainsFunc(h.Name, isInvalidInToken) {
			return nil, fmt.Errorf("field Header[%d].Name: %q is no name of a header", i, h.Name)
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

// notInToken reports whether a character is none of a token, RFC 9110 section 5.6.2.
func isInvalidInToken(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// control reports whether a character may not be in the value of a header, RFC 9110 section 5.5.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
