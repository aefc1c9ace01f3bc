// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "healthy") }))
	defer server.Close()
	u, _ := url.Parse(server.URL)
	port, _ := strconv.Atoi(u.Port())

	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	defer pool.Close()
	p, err := httpprobe.New(httpprobe.Config{Host: u.Hostname(), Port: port, Path: "/healthz", Pool: pool})
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := p.Probe(context.Background())
	fmt.Println(r.Outcome, r.Output, err)
	// Output: success healthy <nil>
}

func BenchmarkProber(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	b.Cleanup(server.Close)
	c := configFor(b, server, "/")
	fresh, _ := httpprobe.New(c)
	c.Pool = newPool(b)
	kept, _ := httpprobe.New(c)
	for name, p := range map[string]probe.Prober{"fresh": fresh, "kept": kept} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r, err := p.Probe(b.Context()); err != nil || r.Outcome != probe.Success {
					b.Fatal(r, err)
				}
			}
		})
	}
}
