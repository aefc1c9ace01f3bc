// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

func TestHTTPSendsTheHeadersOfTheKubelet(t *testing.T) {
	var got http.Header
	server := startServer(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		got.Set("Host", r.Host)
	})
	address := strings.TrimPrefix(server.URL, "http://")
	for name, test := range map[string]struct {
		send []httpprobe.Header
		want http.Header
	}{
		"none": {nil, http.Header{
			"Accept": {"*/*"}, "Connection": {"close"}, "Host": {address}, "User-Agent": {"kube-probe/1.37"},
		}},
		"empty ones": {[]httpprobe.Header{{"User-Agent", ""}, {"Accept", ""}}, http.Header{
			"Connection": {"close"}, "Host": {address},
		}},
		"configured headers, twice": {[]httpprobe.Header{{"accept", "a"}, {"Accept", "b"}, {"user-agent", "me"}, {"x-a", "1\t2"}}, http.Header{
			"Accept": {"a", "b"}, "Connection": {"close"}, "Host": {address}, "User-Agent": {"me"}, "X-A": {"1\t2"},
		}},
		"a virtual host": {[]httpprobe.Header{{"HOST", "www.example.com"}}, http.Header{
			"Accept": {"*/*"}, "Connection": {"close"}, "Host": {"www.example.com"}, "User-Agent": {"kube-probe/1.37"},
		}},
	} {
		c := configFor(t, server, "/")
		c.Header = test.send
		require.Equal(t, probe.Success, probeHTTP(t, c, long).Outcome, name)
		assert.Equal(t, test.want, got, name)
	}
}

func TestNewRejectsInvalidConfig(t *testing.T) {
	good := httpprobe.Config{Host: "10.0.0.1", Port: 80, Path: "/"}
	_, err := httpprobe.New(good)
	require.NoError(t, err)
	for _, test := range []struct {
		change func(*httpprobe.Config)
		want   string
	}{
		{func(c *httpprobe.Config) { c.Port = 0 }, `field Port: 0 is not from 1 to 65535`},
		{func(c *httpprobe.Config) { c.Port = 70000 }, `field Port: 70000 is not from 1 to 65535`},
		{func(c *httpprobe.Config) { c.Host = "" }, `field Host: is empty`},
		{func(c *httpprobe.Config) { c.Host = "a\r\nb" }, `field Host: "a\r\nb" is neither a name nor an IP address`},
		{func(c *httpprobe.Config) { c.Host = "[::1]" }, `field Host: "[::1]" is neither a name nor an IP address`},
		{func(c *httpprobe.Config) { c.Host = "a/b" }, `field Host: "a/b" is neither a name nor an IP address`},
		{func(c *httpprobe.Config) { c.Host = "a:80" }, `field Host: "a:80" is neither a name nor an IP address`},
		{func(c *httpprobe.Config) { c.Scheme = "ftp" }, `field Scheme: "ftp" is neither http nor https`},
		{func(c *httpprobe.Config) { c.Path = "mailto:me" }, `field Path: "mailto:me" is a URL without a path`},
		{
			func(c *httpprobe.Config) { c.Header = []httpprobe.Header{{"A", "b"}, {"X Y", "z"}} },
			`field Header[1].Name: "X Y" is not a header name`,
		},
		{func(c *httpprobe.Config) { c.Header = []httpprobe.Header{{"", "z"}} }, `field Header[0].Name: "" is not a header name`},
		{
			func(c *httpprobe.Config) { c.Header = []httpprobe.Header{{"X", "a\r\nY: b"}} },
			`field Header[0].Value: "a\r\nY: b" of X contains a control character`,
		},
	} {
		c := good
		test.change(&c)
		_, err := httpprobe.New(c)
		require.EqualError(t, err, test.want)
	}
}
